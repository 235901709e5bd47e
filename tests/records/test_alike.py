from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.records.alike import alike, without_arrays
from headrace.records.columns import from_column, to_column
from headrace.records.tensors import ObjectType, TensorType
from headrace.records.types import TypeQuarrelError, cast, unify_types

NESTED = pa.list_(pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("values", "shapes", "dtype"),
    [
        ([np.ones((2, 4), "float32"), np.array([])], [(2, 4), (0, 0)], "float32"),
        ([[], np.ones((2, 4), "float32")], [(0, 0), (2, 4)], "float32"),
        ([np.zeros((0, 4)), np.ones((2, 4), "uint8")], [(0, 4), (2, 4)], "uint8"),
        ([np.array([]), np.ones(2, "int16")], [(0,), (2,)], "int16"),
        ([np.ones(2), np.ones((1, 2))], [(2,), (1, 2)], "float64"),
    ],
)
def test_what_is_empty_is_like_the_others(values: list[Any], shapes: list[tuple[int, ...]], dtype: str) -> None:
    found = alike(values)
    assert [array.shape for array in found] == shapes
    assert {str(array.dtype) for array in found} == {dtype}


def test_values_that_are_alike_are_not_touched() -> None:
    arrays = [np.ones((2, 4), "uint8"), None, np.ones((3, 4), "uint16")]
    assert all(a is b for a, b in zip(alike(arrays), arrays, strict=True))
    others = [np.ones(2), "text", []]
    assert alike(others) is others


def test_without_arrays_leaves_the_rest() -> None:
    class Tensor:
        def detach(self) -> Tensor:
            return self

        cpu = detach

        def tolist(self) -> list[int]:
            return [1, 2]

    thing = object()
    value = {"a": (np.ones((1, 2)), np.int8(3)), "t": Tensor(), "n": None, "x": thing}
    assert without_arrays(value) == {"a": [[[1.0, 1.0]], 3], "t": [1, 2], "n": None, "x": thing}


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (TensorType(pa.float64(), 2), pa.list_(pa.null()), NESTED),
        (TensorType(pa.float32(), 2), NESTED, NESTED),
        (TensorType(pa.int8(), 2), pa.list_(pa.float64()), ObjectType()),
        (TensorType(pa.int8(), 2), TensorType(pa.float32(), 2), ObjectType()),
    ],
)
def test_arrays_beside_lists(left: pa.DataType, right: pa.DataType, both: pa.DataType) -> None:
    assert unify_types(left, right) == both
    assert unify_types(right, left) == both


def test_arrays_beside_text_quarrel() -> None:
    for other in (pa.string(), pa.list_(pa.string()), pa.list_(pa.list_(pa.list_(pa.null())))):
        with pytest.raises(TypeQuarrelError):
            unify_types(TensorType(pa.int8(), 2), other, "x")


def test_arrays_become_nested_lists() -> None:
    arrays = to_column([np.ones((1, 2), "float32"), None, np.zeros((0, 2), "float32")])
    assert from_column(cast(arrays, NESTED)) == [[[1.0, 1.0]], None, []]
    assert from_column(cast(arrays.slice(1), NESTED)) == [None, []]
    inside = pa.StructArray.from_arrays([arrays], names=["m"])
    assert from_column(cast(inside, pa.struct({"m": NESTED})))[0] == {"m": [[1.0, 1.0]]}
