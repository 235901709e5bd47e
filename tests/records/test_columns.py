from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.columns import (
    empty_columns,
    from_column,
    from_columns,
    from_rows,
    to_column,
    to_numpy,
    to_rows,
)
from headrace.records.tensors import ObjectType, TensorType

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4) | st.binary(max_size=4)
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=2), v, max_size=2))


@given(st.lists(VALUES, max_size=6))
def test_values_come_back(values: list[Any]) -> None:
    """Dicts may gain keys that their neighbours have, as nulls; nothing else changes."""
    got = from_column(to_column(values))
    assert len(got) == len(values)
    assert all(_holds(g, v) for g, v in zip(got, values, strict=True))


def _holds(got: Any, value: Any) -> bool:
    if isinstance(value, dict) and isinstance(got, dict):
        return all(_holds(got.get(k), v) for k, v in value.items()) and all(
            got[k] is None for k in got if k not in value
        )
    if isinstance(value, list) and isinstance(got, list):
        return len(got) == len(value) and all(_holds(g, v) for g, v in zip(got, value, strict=True))
    return bool(got == value and type(got) is type(value))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None], pa.int64()),
        ([1, None, 2.5], pa.float64()),
        ([2**63], pa.uint64()),
        ([2**64], ObjectType()),
        ([-1, 2**63], ObjectType()),
        ([1, "a"], ObjectType()),
        ([True, 1], ObjectType()),
        ([1.5, True], ObjectType()),
        ([b"a", "b"], ObjectType()),
        ([["a", b"b"]], ObjectType()),
        ([{"x": [datetime.datetime(2024, 1, 1, 5)]}, {"x": [datetime.date(2024, 1, 1)]}], ObjectType()),
        ([datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 5)], ObjectType()),
        ([{1}, object], ObjectType()),
        ([np.int32(1), None], pa.int64()),
        ([np.array(5)], pa.int64()),
        ([np.array([1, 2], "uint8"), None], pa.list_(pa.uint8())),
        ([np.array([1, 2]), np.array([1.5])], pa.list_(pa.float64())),
        ([np.zeros((0, 4), "float32"), np.zeros((2, 4), "float32")], TensorType(pa.float32(), 2)),
        ([np.zeros((2, 2), "uint8"), np.zeros((2, 2), "uint16")], ObjectType()),
        ([np.zeros((2, 2)), np.zeros((2, 2, 3))], ObjectType()),
        ([np.array(["a"])], pa.list_(pa.string())),
        ([datetime.date(2024, 1, 1)], pa.date32()),
        ([None], pa.null()),
        ([], pa.null()),
    ],
)
def test_types(values: list[Any], type_: pa.DataType) -> None:
    assert to_column(values).type == type_
    if type_ == ObjectType():
        assert [repr(v) for v in from_column(to_column(values))] == [repr(v) for v in values]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2), (4, 0), (0, 3), (0, 2, 2), (1, 1, 1)])
def test_numpy_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    got = to_numpy(to_column(values))
    if shape[0]:
        assert got.dtype == values.dtype
        assert np.array_equal(got, values)
    else:
        assert len(got) == 0


def test_slices_of_every_kind() -> None:
    rows = [np.full((i + 1, 2), i) for i in range(5)]
    column = to_column(rows).slice(1, 3)
    assert [a.tolist() for a in from_column(column)] == [a.tolist() for a in rows[1:4]]
    matrix = to_column(np.arange(10).reshape(5, 2)).slice(2, 2)
    assert to_numpy(matrix).tolist() == [[4, 5], [6, 7]]
    fixed = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)).slice(1)
    assert to_numpy(fixed).tolist() == [[3, 4], [5, 6]]


def test_numpy_of_nulls_and_of_uneven_rows() -> None:
    assert np.isnan(to_numpy(pa.array([1, None]))[1])
    assert to_numpy(pa.array(["a", None])).tolist() == ["a", None]
    uneven = to_numpy(pa.array([[1], None, [2, 3]]))
    assert (uneven.dtype, uneven[2].tolist(), uneven[1]) == (object, [2, 3], None)
    ragged = to_numpy(to_column([np.zeros((1, 2)), np.zeros((2, 2))]))
    assert (ragged.dtype, ragged[1].shape) == (object, (2, 2))


def test_rows() -> None:
    batch = from_rows([{"id": 1}, {"id": 2, "lang": "fi"}])
    assert to_rows(batch) == [{"id": 1, "lang": None}, {"id": 2, "lang": "fi"}]
    assert from_rows([{}, {}]).num_rows == 2
    assert to_rows(empty_columns(2)) == [{}, {}]
    assert from_columns({"a": [1], "b": np.zeros((1, 2, 2))}).num_rows == 1


def test_chunked_columns_become_one() -> None:
    assert to_column(pa.chunked_array([[1], [2]])).to_pylist() == [1, 2]
    assert to_column(pa.chunked_array([], pa.int64())).to_pylist() == []
