"""Column functions: what they do to batches, and what they refuse before a run."""

import pyarrow as pa
import pytest

from headrace.errors import PlanError, UnknownColumnError
from headrace.plan.columns import Drop, Rename, Select

BATCH = pa.record_batch({"id": [1], "text": ["a"], "lang": ["fi"]})


def test_select_keeps_the_order_asked_for() -> None:
    assert Select(("lang", "id"))(BATCH).schema.names == ["lang", "id"]
    assert Select(("lang", "id")).after(["id", "text", "lang"], "s") == ["lang", "id"]


def test_drop_leaves_the_rest() -> None:
    assert Drop(("text",))(BATCH).schema.names == ["id", "lang"]
    assert Drop(("text",)).after(["id", "text"], "s") == ["id"]


def test_rename_keeps_places() -> None:
    assert Rename((("text", "body"),))(BATCH).schema.names == ["id", "body", "lang"]
    assert Rename((("id", "text"), ("text", "id"))).after(["id", "text"], "s") == ["text", "id"]


@pytest.mark.parametrize("function", [Select(("txt",)), Drop(("txt",)), Rename((("txt", "body"),))])
def test_an_unknown_column_is_refused_with_the_nearest_name(function) -> None:
    with pytest.raises(UnknownColumnError, match=r"step 's' needs column 'txt'.*did you mean 'text'"):
        function.after(["id", "text"], "s")


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(PlanError, match="two columns the name 'text'"):
        Rename((("id", "text"),)).after(["id", "text"], "s")


def test_a_batch_that_lacks_a_column_is_an_error_unless_it_has_no_rows() -> None:
    with pytest.raises(UnknownColumnError):
        Select(("id", "score"))(BATCH)
    assert Select(("id", "score"))(BATCH.slice(0, 0)).schema.names == ["id", "score"]
