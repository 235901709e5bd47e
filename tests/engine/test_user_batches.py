"""Batches as users' functions see them, and what they may answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.user_batches import Rows, from_user, to_user, with_column
from headrace.errors import RunError

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


@pytest.mark.parametrize("key", [1, None, "\ud800", b"x"])
@pytest.mark.parametrize("kind", ["map", "flat_map"])
def test_keys_that_name_no_column_fail_their_row(kind: str, key: object, tmp_path: Path) -> None:
    def odd(row: dict[Any, Any]) -> Any:
        made = {**row, key: 1} if row["id"] == 1 else row
        return made if kind == "map" else [made]

    ds = getattr(hr.range(3), kind)(odd)
    result = ds.write_json(str(tmp_path / "out")).run(on_error="dead_letter")
    assert (result.rows_written, result.failed) == (2, 1)


def test_batches_of_columns_without_a_common_type_reach_the_caller_as_they_are() -> None:
    values = [1, "x", 2**60 + 1, 0.5]
    ds = hr.range(4).map_batches(
        lambda rows: [{"x": values[row["id"]]} for row in rows], batch_format="rows", batch_size=1
    )
    (batch,) = ds.iter_batches(batch_size=4)
    assert batch["x"].tolist() == values
    with pytest.raises(RunError, match=r"'x' is int64 and string; make the step .*iter_rows"):
        ds.to_arrow()
    assert [row["x"] for row in ds.run_inference(Counting(), batch_size=4).take(4)] == values


class Counting(hr.ModelHandler):
    def load_model(self) -> None:
        return None

    def run_inference(self, batch: list[dict[str, Any]], model: None) -> list[int]:
        return [len(batch)] * len(batch)


def test_neighbouring_rows_of_an_untouched_column_are_not_copied() -> None:
    batch = pa.record_batch({"text": ["a", "b", "c", "d"]})
    given = Rows(batch)
    rows = list(given.dicts())
    made = given.batch_of(rows[1:3], [1, 2]).column("text")
    assert made.to_pylist() == ["b", "c"]
    assert [b and b.address for b in made.buffers()] == [b and b.address for b in batch.column("text").buffers()]
    apart = given.batch_of([rows[0], rows[0], rows[2]], [0, 0, 2]).column("text")
    assert apart.to_pylist() == ["a", "a", "c"]
