from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.model.slots import Slot, assign, fit, fixed_rows

BATCH = pa.record_batch({"id": [1, 2], "a": [1, 2], "b": [0.5, 4.0], "text": ["x", "y"]})


def slot(name: str = "x", dtype: Any = "float32", shape: Any = (None, 2)) -> Slot:
    return Slot(name=name, dtype=np.dtype(dtype), shape=shape)


def assigned(batch: Any, *slots: Slot) -> dict[str, list[Any]]:
    return {one.name: array.tolist() for one, array in assign(batch, slots)}


def test_columns_go_where_their_names_say() -> None:
    assert assigned(BATCH, slot("b"), slot("a")) == {"b": [0.5, 4.0], "a": [1, 2]}
    assert assigned({"a": BATCH.column("a"), "x": BATCH.select(["a", "b"])}, slot("x")) == {"x": [[1, 0.5], [2, 4]]}


def test_all_columns_make_the_matrix_of_the_only_input() -> None:
    assert assigned(BATCH.select(["a", "b"]), slot()) == {"x": [[1, 0.5], [2, 4]]}
    assert assigned(BATCH.select(["a"]), slot()) == {"x": [1, 2]}
    assert assigned(BATCH.column("a"), slot()) == {"x": [1, 2]}
    assert assigned(np.array([1, 2]), slot()) == {"x": [1, 2]}
    assert assigned({"y": np.array([1, 2])}, slot()) == {"x": [1, 2]}


def test_inputs_without_a_column_are_named() -> None:
    with pytest.raises(PlanError, match=r"'a' float32 .*'x' float32 .*nothing is given for x. Name a column.*inputs="):
        assign(BATCH, [slot("a"), slot("x")])
    with pytest.raises(PlanError, match=r"'x' float32 \['\?', 2\], and was given 4 columns \(id, a, b, text\)"):
        assign(BATCH, [slot()])
    with pytest.raises(PlanError, match="nothing is given for x"):
        assign({"y": np.zeros(2), "z": np.zeros(2)}, [slot()])


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        (np.array([1.5, 2.5]), slot(shape=(None,)), [1.5, 2.5]),
        (np.array([1, 2]), slot(shape=(None, 1)), [[1.0], [2.0]]),
        (np.array([[1, 2]], dtype="int64"), slot(dtype="int32"), [[1, 2]]),
        (np.array([True, False]), slot(dtype="int64", shape=(None,)), [1, 0]),
        (np.array(["x", "y"], dtype=object), slot(dtype=object, shape=(None,)), ["x", "y"]),
        (np.zeros((1, 2, 3)), slot(shape=None), np.zeros((1, 2, 3)).tolist()),
    ],
)
def test_numbers_are_cast_where_their_kind_allows(given: Any, wanted: Slot, expected: Any) -> None:
    made = fit(given, wanted)
    assert made.dtype == wanted.dtype
    assert made.tolist() == expected


RAGGED = np.empty(2, dtype=object)
RAGGED[:] = [np.zeros(2), np.zeros(3)]


@pytest.mark.parametrize(
    ("given", "wanted", "words"),
    [
        (np.array([0.5]), slot(dtype="int32", shape=(None,)), "was given float64; cast the column first"),
        (np.array([1.0, np.nan]), slot(dtype="int32", shape=(None,)), "was given a null or NaN"),
        (np.array([2**40]), slot(dtype="int32", shape=(None,)), "was given numbers beyond int32"),
        (np.array([1]), slot(dtype="bool", shape=(None,)), "was given int64; cast the column first"),
        (np.array(["x"], dtype=object), slot(shape=(None,)), "was given str"),
        (np.array(["x", None], dtype=object), slot(dtype=object, shape=(None,)), "was given a null"),
        (RAGGED, slot(), "was given rows of different lengths; pass collate=hr.PadSequences"),
        (np.zeros((2, 3)), slot(), r"'x' float32 \['\?', 2\] was given an array of shape \(2, 3\)"),
        (np.zeros(2), slot(), r"was given an array of shape \(2,\)"),
    ],
)
def test_what_does_not_fit_is_told(given: Any, wanted: Slot, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(given, wanted)


def test_a_batch_of_one_size_only() -> None:
    assert fixed_rows([slot(shape=(8, 2)), slot(shape=(8,))]) == 8
    assert fixed_rows([slot(), slot(shape=("n", 2))]) is None
    assert fixed_rows([slot(shape=None)]) is None
