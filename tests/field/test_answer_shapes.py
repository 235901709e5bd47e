"""Answers of any shape: the number of rows in a batch changes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import RunError, SinkError
from tests.field.running import rows_in

WANTED = [3, 1, 0, 4, 1, 2, 1]
ITEMS = [{"id": i, "boxes_wanted": k} for i, k in enumerate(WANTED)]
SIZES = (1, 2, 3, 7)

Rows = list[dict[str, Any]]


class Answering(hr.ModelHandler):
    def __init__(self, answer: Callable[[Rows], Any]):
        self.answer = answer

    def load_model(self):
        return self.answer

    def run_inference(self, batch, model):
        return model(batch)


class Tensor:
    """Stands for a framework's tensor: it must be detached and moved before numpy can have it."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)
        self.shape = self.array.shape

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.array

    def tolist(self):
        return self.array.tolist()


def boxes(row: dict[str, Any]) -> Any:
    return np.full((row["boxes_wanted"], 4), row["id"], dtype="float32")


def expected_boxes(row: dict[str, Any]) -> list[list[float]]:
    return [[float(row["id"])] * 4] * row["boxes_wanted"]


def written(
    answer: Callable[[Rows], Any], kind: str, size: int, **options: Any
) -> tuple[list[Any], pa.DataType | None]:
    """Return the answers of a job in batches of a size, and the type of their column where the format has types."""
    out = f"{kind}{size}"
    ds = hr.from_items(ITEMS).run_inference(Answering(answer), batch_size=size, **options)
    result = getattr(ds, f"write_{kind}")(out).run()
    assert result.rows_written == 7
    rows = rows_in(out) if kind != "csv" else hr.read_csv(f"{out}/part-*").take()
    assert [row["id"] for row in rows] == list(range(7))
    type_ = pq.read_table(out).schema.field("prediction").type if kind == "parquet" else None
    return [row["prediction"] for row in rows], type_


def same_for_all_sizes(
    answer: Callable[[Rows], Any], kind: str, **options: Any
) -> tuple[list[Any], pa.DataType | None]:
    first, *others = [written(answer, kind, size, **options) for size in SIZES]
    for other in others:
        assert other == first
    return first


BOXES: dict[str, Callable[[Rows], Any]] = {
    "arrays": lambda batch: [boxes(row) for row in batch],
    "tensors": lambda batch: [Tensor(boxes(row)) for row in batch],
    "a generator": lambda batch: (boxes(row) for row in batch),
    "an array of objects": lambda batch: objects([boxes(row) for row in batch]),
    "results": lambda batch: [hr.PredictionResult(row, boxes(row)) for row in batch],
    "nested lists": lambda batch: [boxes(row).tolist() for row in batch],
    "lists of arrays": lambda batch: [list(boxes(row)) for row in batch],
    "no boxes as an array of nothing": lambda batch: [boxes(r) if r["boxes_wanted"] else np.array([]) for r in batch],
    "no boxes as an empty list": lambda batch: [boxes(r) if r["boxes_wanted"] else [] for r in batch],
    "no boxes in another dtype": lambda batch: [
        boxes(r).astype("float64") if r["boxes_wanted"] else np.zeros((0, 4), "int64") for r in batch
    ],
    "lists beside arrays": lambda batch: [boxes(r).tolist() if r["id"] % 2 else boxes(r) for r in batch],
    "alike in one batch and not in the next": lambda batch: [boxes(row) for row in batch],
}


def objects(values: list[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


@pytest.mark.parametrize("shape", BOXES)
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_each_row_has_its_own_number_of_boxes(shape: str, kind: str) -> None:
    found, type_ = same_for_all_sizes(BOXES[shape], kind)
    assert found == [expected_boxes(row) for row in ITEMS]
    if kind == "parquet":
        assert pa.types.is_list(type_)
        assert pa.types.is_list(type_.value_type)
        assert pa.types.is_floating(type_.value_type.value_type)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_boxes_of_a_model_in_any_isolation(isolation: str) -> None:
    found, type_ = written(BOXES["arrays"], "parquet", 2, isolation=isolation)
    assert found == [expected_boxes(row) for row in ITEMS]
    assert type_ == pa.list_(pa.field("element", pa.list_(pa.field("element", pa.float32()))))


def test_boxes_of_which_no_row_has_any() -> None:
    found, _ = same_for_all_sizes(lambda batch: [np.zeros((0, 4), "float32") for _ in batch], "parquet")
    assert found == [[]] * 7
    found, _ = same_for_all_sizes(lambda batch: [np.array([]) for _ in batch], "json")
    assert found == [[]] * 7


SCORES: dict[str, Callable[[Rows], Any]] = {
    "squeezed": lambda batch: np.squeeze(np.array([[r["id"] * 0.5] for r in batch])),
    "a squeezed tensor": lambda batch: Tensor(np.squeeze(np.array([[r["id"] * 0.5] for r in batch]))),
    "a bare number": lambda batch: batch[0]["id"] * 0.5 if len(batch) == 1 else [r["id"] * 0.5 for r in batch],
    "a list": lambda batch: [r["id"] * 0.5 for r in batch],
    "a tuple": lambda batch: tuple(r["id"] * 0.5 for r in batch),
    "numbers of numpy": lambda batch: [np.float64(r["id"] * 0.5) for r in batch],
    "arrays without dimensions": lambda batch: [np.array(r["id"] * 0.5) for r in batch],
    "an array": lambda batch: np.array([r["id"] * 0.5 for r in batch]),
    "a series": lambda batch: pd.Series([r["id"] * 0.5 for r in batch], index=[9] * len(batch)),
    "an Arrow array": lambda batch: pa.array([r["id"] * 0.5 for r in batch]),
    "a chunked array": lambda batch: pa.chunked_array([[r["id"] * 0.5] for r in batch]),
    "integers and floats": lambda batch: [r["id"] // 2 if r["id"] % 2 == 0 else r["id"] * 0.5 for r in batch],
}


@pytest.mark.parametrize("shape", SCORES)
@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_a_number_for_each_row(shape: str, kind: str) -> None:
    found, type_ = same_for_all_sizes(SCORES[shape], kind)
    assert found == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert kind != "parquet" or type_ == pa.float64()


def test_a_vector_squeezed_for_the_last_batch_of_one() -> None:
    for size in (2, 3, 7):
        found, _ = written(lambda batch: np.squeeze(np.array([[r["id"], 0.5] for r in batch])), "parquet", size)
        assert found == [[float(i), 0.5] for i in range(7)]


def test_a_vector_squeezed_from_the_first_batch_on_is_told() -> None:
    ds = hr.from_items(ITEMS).run_inference(Answering(lambda batch: np.squeeze(np.ones((len(batch), 3)))), batch_size=1)
    with pytest.raises(RunError, match=r"answered 3 times for 1 row.*must keep its first dimension"):
        ds.write_json("out").run()


PARTS: dict[str, Callable[[Rows], Any]] = {
    "a dict of arrays": lambda batch: {
        "score": np.array([r["id"] * 0.5 for r in batch]),
        "pair": np.array([[r["id"], 1] for r in batch]),
    },
    "a dict of tensors": lambda batch: {
        "score": Tensor([r["id"] * 0.5 for r in batch]),
        "pair": Tensor([[r["id"], 1] for r in batch]),
    },
    "a squeezed dict": lambda batch: {
        "score": np.squeeze([[r["id"] * 0.5] for r in batch]),
        "pair": [[r["id"], 1] for r in batch],
    },
    "dicts": lambda batch: [{"score": r["id"] * 0.5, "pair": [r["id"], 1]} for r in batch],
    "dicts of arrays": lambda batch: [
        {"score": np.float64(r["id"] * 0.5), "pair": np.array([r["id"], 1])} for r in batch
    ],
    "a table": lambda batch: pa.table({"score": [r["id"] * 0.5 for r in batch], "pair": [[r["id"], 1] for r in batch]}),
    "a frame": lambda batch: pd.DataFrame(
        {"score": [r["id"] * 0.5 for r in batch], "pair": [[r["id"], 1] for r in batch]}, index=[3] * len(batch)
    ),
}


@pytest.mark.parametrize("shape", PARTS)
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_answers_of_several_parts(shape: str, kind: str) -> None:
    found, _ = same_for_all_sizes(PARTS[shape], kind)
    assert found == [{"score": i * 0.5, "pair": [i, 1]} for i in range(7)]


@pytest.mark.parametrize("shape", PARTS)
def test_answers_of_several_parts_in_columns_of_their_own(shape: str) -> None:
    for size in SIZES:
        ds = hr.from_items(ITEMS).run_inference(
            Answering(PARTS[shape]), batch_size=size, output={"score": "s", "pair": "p"}
        )
        ds.write_json(f"out{size}").run()
        assert [(row["s"], row["p"]) for row in rows_in(f"out{size}")] == [(i * 0.5, [i, 1]) for i in range(7)]


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_boxes_inside_dicts_and_lists_are_nested_lists_in_files(kind: str) -> None:
    found, _ = same_for_all_sizes(lambda batch: [{"boxes": boxes(row), "label": "x"} for row in batch], kind)
    assert found == [{"boxes": expected_boxes(row), "label": "x"} for row in ITEMS]


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_lists_of_dicts_with_arrays(kind: str) -> None:
    found, _ = same_for_all_sizes(
        lambda batch: [[{"box": box, "score": np.float64(0.5)} for box in boxes(row)] for row in batch], kind
    )
    assert found == [[{"box": box, "score": 0.5} for box in expected_boxes(row)] for row in ITEMS]


MATRICES: dict[str, Callable[[Rows], Any]] = {
    "of one dtype": lambda batch: np.array([[[r["id"]] * 3] * 2 for r in batch], dtype="float64"),
    "of several dtypes": lambda batch: [np.full((2, 3), r["id"], "uint8" if r["id"] % 2 else "float64") for r in batch],
    "some of them None": lambda batch: [None if r["id"] == 4 else np.full((2, 3), float(r["id"])) for r in batch],
}


@pytest.mark.parametrize("shape", MATRICES)
def test_matrices(shape: str) -> None:
    found, type_ = same_for_all_sizes(MATRICES[shape], "parquet")
    none = 4 if shape == "some of them None" else -1
    assert found == [None if i == none else [[float(i)] * 3] * 2 for i in range(7)]
    assert type_.value_type.value_type == pa.float64()


def test_arrays_of_differing_dimensions_go_into_files_of_text_and_are_refused_for_parquet() -> None:
    def answer(batch: Rows) -> list[Any]:
        return [np.ones(2) if r["id"] < 4 else np.ones((1, 2)) for r in batch]

    found, _ = same_for_all_sizes(answer, "json")
    assert found == [[1.0, 1.0]] * 4 + [[[1.0, 1.0]]] * 3
    for size in SIZES:
        with pytest.raises(
            SinkError, match="'prediction' holds .* arrays of different dtypes or numbers of dimensions"
        ):
            written(answer, "parquet", size)


def test_steps_behind_a_model_see_arrays_whatever_the_batch() -> None:
    for size in SIZES:
        ds = hr.from_items(ITEMS).run_inference(
            Answering(BOXES["arrays"]), batch_size=size, postprocess=functools.partial(np.sum, axis=0)
        )
        sums = [row["prediction"] for row in ds.take()]
        assert sums == [[float(i * k)] * 4 for i, k in enumerate(WANTED)]


@pytest.mark.parametrize("size", SIZES)
def test_steps_behind_a_model_see_the_arrays_inside_dicts_too(size: int) -> None:
    ds = hr.from_items(ITEMS).run_inference(
        Answering(lambda batch: [{"boxes": boxes(row), "area": {"mask": boxes(row)}} for row in batch]), batch_size=size
    )
    ds = ds.map(
        lambda row: {"shapes": [row["prediction"]["boxes"].shape[0], row["prediction"]["area"]["mask"].shape[1]]}
    )
    assert [row["shapes"] for row in ds.take()] == [[k, 4] for k in WANTED]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 1_000])
def test_batch_sizes_that_do_not_divide_the_rows(rows: int, concurrency: int) -> None:
    ds = hr.range(rows).run_inference(
        Answering(lambda batch: [r["id"] for r in batch]), batch_size=64, concurrency=concurrency
    )
    ds.write_parquet("out").run()
    table = pq.read_table("out")
    assert table["id"].to_pylist() == table["prediction"].to_pylist() == list(range(rows))
