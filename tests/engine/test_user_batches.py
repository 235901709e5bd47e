"""Batches as users' functions see them, and what they may answer."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.user_batches import Rows, from_user, to_user, with_column

BATCH = pa.record_batch({"id": pa.array([1, 2], pa.int8()), "text": pa.array(["a", None])})


@pytest.mark.parametrize("batch_format", ["rows", "numpy", "pyarrow", "pandas"])
def test_every_form_comes_back_with_the_same_values(batch_format) -> None:
    if batch_format == "pandas":
        pytest.importorskip("pandas")
    assert from_user(to_user(BATCH, batch_format)).to_pydict() == BATCH.to_pydict()


def test_tables_in_several_chunks_and_none_become_one_batch() -> None:
    table = pa.Table.from_batches([BATCH, BATCH])
    assert from_user(table).num_rows == 4
    assert from_user(BATCH.schema.empty_table()).schema == BATCH.schema


@pytest.mark.parametrize("answer", [None, 3, "rows", np.zeros(2)])
def test_other_answers_are_refused_with_those_that_will_do(answer) -> None:
    with pytest.raises(TypeError, match="return a dict of columns"):
        from_user(answer)


def test_untouched_columns_keep_their_arrow_type() -> None:
    rows = Rows(BATCH)
    made = rows.batch_of([{**row, "new": 0} for row in rows.dicts()], [0, 1])
    assert made.schema.types == [pa.int8(), pa.string(), pa.int64()]


def test_so_do_those_of_the_rows_that_are_left() -> None:
    rows = Rows(BATCH)
    made = rows.batch_of([rows.dict_of(1)], [1])
    assert made.schema.field("id").type == pa.int8()
    assert made.to_pydict() == {"id": [2], "text": [None]}


def test_changed_values_decide_their_type_anew() -> None:
    made = Rows(BATCH).batch_of([{"id": 0.5}, {"id": 1.5}], [0, 1])
    assert made.schema.types == [pa.float64()]


def test_rows_without_columns_are_rows_all_the_same() -> None:
    rows = Rows(BATCH.select([]))
    assert list(rows.dicts()) == [{}, {}]
    assert rows.batch_of([{}, {}], [0, 1]).num_rows == 2


def test_a_column_is_put_behind_the_others_or_in_its_own_place() -> None:
    assert with_column(BATCH, "new", pa.array([0, 0])).schema.names == ["id", "text", "new"]
    replaced = with_column(BATCH, "id", pa.array(["x", "y"]))
    assert replaced.schema.names == ["id", "text"]
    assert replaced["id"].to_pylist() == ["x", "y"]
