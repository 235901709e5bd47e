from __future__ import annotations

import collections
from functools import reduce

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace.errors import AnswerError, RowError
from headrace.model.answers import Answers, pair
from headrace.model.handler import PredictionResult
from headrace.records.columns import from_column
from headrace.records.types import unify_types


def paired(answers: object, rows: int, output: object = "prediction") -> Answers:
    return pair(answers, rows, handler_name="Net", output=output)  # type: ignore[arg-type]


def values(answers: object, rows: int) -> list[object]:
    return from_column(paired(answers, rows).columns["prediction"])


class Tensor:
    """Stands for a framework's tensor: it must be detached and moved before numpy can have it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.state = array, "attached"

    def detach(self) -> Tensor:
        self.state = "detached"
        return self

    def cpu(self) -> Tensor:
        assert self.state == "detached"
        self.state = "here"
        return self

    def numpy(self) -> np.ndarray:
        assert self.state == "here"
        return self.array


class Exported:
    """Stands for a tensor that numpy can read by itself."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array([1.5, 2.5])


@pytest.mark.parametrize(
    "answers",
    [
        [1.5, 2.5],
        (1.5, 2.5),
        (x for x in (1.5, 2.5)),
        {"a": 1.5, "b": 2.5}.values(),
        collections.deque([1.5, 2.5]),
        np.array([1.5, 2.5]),
        np.array([1.5, 2.5], dtype=object),
        [np.float64(1.5), np.array(2.5)],
        pa.array([1.5, 2.5]),
        pa.chunked_array([[1.5], [2.5]]),
        pd.Series([1.5, 2.5], index=[7, 8]),
        Tensor(np.array([1.5, 2.5])),
        Exported(),
        [Tensor(np.array(1.5)), Tensor(np.array(2.5))],
        [PredictionResult(None, 1.5), PredictionResult(None, 2.5)],
    ],
    ids=lambda answers: type(answers).__name__,
)
def test_every_kind_of_sequence(answers: object) -> None:
    assert values(answers, 2) == [1.5, 2.5]


@pytest.mark.parametrize("bare", [0.5, np.float64(0.5), np.array(0.5), Tensor(np.array(0.5)), PredictionResult(1, 0.5)])
def test_a_bare_value_answers_a_batch_of_one(bare: object) -> None:
    assert values(bare, 1) == [0.5]
    with pytest.raises(AnswerError):
        paired(bare, 3)


def test_a_bare_text_answers_one_row_but_is_no_list_of_letters() -> None:
    assert values("yes", 1) == ["yes"]
    with pytest.raises(AnswerError, match="Net answered a str for 3 rows"):
        paired("yes", 3)


@pytest.mark.parametrize(
    ("answers", "rows", "words"),
    [
        (["a"] * 5, 4, "handler Net answered 5 times for 4 rows; answers are paired by position"),
        (["a"], 4, "handler Net answered once for 4 rows"),
        ([], 4, "handler Net answered 0 times for 4 rows"),
        (None, 4, r"handler Net answered nothing \(None\) for 4 rows"),
        (["a", "b"], 1, "handler Net answered 2 times for 1 row;"),
        (np.zeros((1, 4)), 4, "answered once for 4 rows"),
        (np.zeros(384), 1, r"must keep its first dimension.*\(384,\)"),
        ((np.zeros(4), np.zeros(4), np.zeros(4)), 4, "a tuple of 3 arrays for 4 rows.*return a dict for several"),
        ({1, 2, 3, 4}, 4, "a set for 4 rows, which has no order"),
        ({"a": [1, 2, 3]}, 4, "answered 3 times under key 'a' for 4 rows"),
        (pa.nulls(3), 4, "answered 3 times"),
        (7, 4, "answered a int for 4 rows"),
    ],
)
def test_a_wrong_count_is_an_error_that_says_so(answers: object, rows: int, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        paired(answers, rows)


def test_row_errors_stand_in_the_place_of_answers() -> None:
    answers = paired([1, RowError("too dark"), 3], 3)
    assert from_column(answers.columns["prediction"]) == [1, None, 3]
    assert {row: str(error) for row, error in answers.failures.items()} == {1: "too dark"}


def test_row_errors_inside_parts_results_and_object_arrays() -> None:
    assert list(paired({"a": [1, RowError("x")], "b": [RowError("y"), 2]}, 2).failures) == [0, 1]
    assert list(paired([PredictionResult(1, RowError("x")), 2], 2).failures) == [0]
    array = np.array([1, RowError("x")], dtype=object)
    assert list(paired(array, 2).failures) == [1]
    assert list(paired(RowError("x"), 1, output={"a": "b"}).failures) == [0]


def test_model_ids_of_results() -> None:
    answers = paired([PredictionResult(1, "a", model_id="v2"), PredictionResult(2, "b")], 2)
    assert answers.model_ids == ["v2", None]
    assert paired([PredictionResult(1, "a")], 1).model_ids is None


def test_dict_of_arrays_is_a_struct_or_columns() -> None:
    parts = {"label": ["a", "b"], "score": np.array([[1.0, 2.0], [3.0, 4.0]])}
    assert values(parts, 2) == [{"label": "a", "score": [1.0, 2.0]}, {"label": "b", "score": [3.0, 4.0]}]
    columns = paired(parts, 2, output={"score": "s", "label": "l"}).columns
    assert list(columns) == ["s", "l"]
    assert columns["l"].to_pylist() == ["a", "b"]


def test_list_of_dicts_is_a_struct_or_columns() -> None:
    dicts = [{"label": "a", "boxes": np.zeros((2, 4))}, None, {"label": "b", "boxes": np.zeros((0, 4))}]
    column = paired(dicts, 3).columns["prediction"]
    assert pa.types.is_struct(column.type)
    assert column.is_null().to_pylist() == [False, True, False]
    columns = paired(dicts, 3, output={"label": "l"}).columns
    assert columns["l"].to_pylist() == ["a", None, "b"]


def test_frames_and_batches_are_parts() -> None:
    frame = pd.DataFrame({"label": ["a", "b"], "score": [1, 2]}, index=[5, 6])
    expected = [{"label": "a", "score": 1}, {"label": "b", "score": 2}]
    assert values(frame, 2) == expected
    assert values(pa.RecordBatch.from_pylist(expected), 2) == expected
    assert paired(frame, 2, output={"score": "s"}).columns["s"].to_pylist() == [1, 2]


def test_a_missing_key_is_an_error_of_the_batch_or_of_the_row() -> None:
    with pytest.raises(AnswerError, match="without key 'scor'.*did you mean 'score'"):
        paired({"score": [1]}, 1, output={"scor": "s"})
    answers = paired([{"score": 1}, {"other": 2}], 2, output={"score": "s"})
    assert list(answers.failures) == [1]


def test_a_mapping_needs_dict_answers() -> None:
    with pytest.raises(AnswerError, match=r"Net answers with float.*output="):
        paired([0.5], 1, output={"score": "s"})


def test_what_a_model_writes_later_does_not_change_its_answers() -> None:
    buffer = np.array([1.0, 2.0])
    column = paired(buffer, 2).columns["prediction"]
    buffer[:] = 0
    assert column.to_pylist() == [1.0, 2.0]


RAGGED = [np.full((k, 4), k, dtype="float32") for k in (3, 1, 0, 4, 1, 2, 1)]
EQUAL = [np.full((2, 4), k, dtype="float32") for k in range(7)]
VECTORS = [np.full(k, 1, dtype="float32") for k in (3, 1, 0, 4, 1, 2, 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "rows", [RAGGED, EQUAL, VECTORS, [{"boxes": b} for b in RAGGED]], ids=["ragged", "equal", "vectors", "parts"]
)
def test_types_do_not_depend_on_the_batch(rows: list[object], size: int) -> None:
    whole = paired(rows, 7).columns["prediction"]
    pieces = [
        paired(rows[i : i + size], len(rows[i : i + size])).columns["prediction"] for i in range(0, len(rows), size)
    ]
    assert reduce(unify_types, [piece.type for piece in pieces]) == whole.type
    assert {str(piece.type) for piece in pieces} <= {str(whole.type), str(pa.list_(pa.null()))}
    got = [value for piece in pieces for value in from_column(piece)]
    for value, expected in zip(got, from_column(whole), strict=True):
        np.testing.assert_equal(value, expected)


def test_ragged_equal_and_stacked_arrays_have_one_type() -> None:
    types = {str(paired(a, len(a)).columns["prediction"].type) for a in (RAGGED, EQUAL, np.stack(EQUAL))}
    assert len(types) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_squeezed_answers(size: int) -> None:
    column = np.arange(7, dtype="float32")[:, None] * 0.5
    pieces = [column[i : i + size] for i in range(0, 7, size)]
    arrays = [paired(np.squeeze(piece), len(piece)).columns["prediction"] for piece in pieces]
    assert pa.chunked_array(arrays).to_pylist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize(
    "empty", [{}, pd.DataFrame(index=range(4)), pa.record_batch({})], ids=["dict", "frame", "batch"]
)
@pytest.mark.parametrize("output", ["prediction", {"label": "topic"}], ids=["name", "mapping"])
def test_a_dict_or_table_without_parts_is_no_answer(empty: object, output: object) -> None:
    with pytest.raises(AnswerError, match=r"without any key or column for 4 rows"):
        paired(empty, 4, output)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_tuple_of_arrays_is_never_taken_for_one_answer_a_row(rows: int) -> None:
    """For two rows the number would be right, and each row would get the other output."""
    with pytest.raises(AnswerError, match="a tuple of 2 arrays"):
        paired((np.zeros((rows, 3)), np.ones((rows, 3))), rows)
    assert values([np.zeros(2), np.ones(2)], 2) == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize(("known", "squeezed"), [((3,), (3,)), ((2, 3), (2, 3)), ((1, 3), (1, 3))])
def test_an_array_of_the_shape_of_one_answer_answers_a_batch_of_one(known: tuple, squeezed: tuple) -> None:
    answers = pair(np.ones(squeezed), 1, handler_name="Net", known_shapes={None: known})
    assert np.array(from_column(answers.columns["prediction"])[0]).shape == known


def test_batches_tell_the_shape_of_one_answer() -> None:
    assert paired(np.ones((4, 3)), 4).shapes == {None: (3,)}
    assert paired({"a": np.ones(4), "b": np.ones((4, 2, 2))}, 4).shapes == {"a": (), "b": (2, 2)}
    assert paired([1, 2], 2).shapes == {}
