from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.columns import from_column, to_column
from headrace.records.tensors import ObjectType, TensorType
from headrace.records.types import TypeQuarrelError, cast, conform, unify_schemas, unify_types

SCALARS = st.sampled_from([pa.null(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.int8(), pa.binary()])
TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda d: pa.struct(list(d.items()))),
    ),
    max_leaves=4,
)


def unified(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    try:
        return unify_types(left, right)
    except TypeQuarrelError:
        return None


def bare(type_: pa.DataType | None) -> Any:
    """The type without the order of fields."""
    if type_ is None:
        return None
    if pa.types.is_struct(type_):
        return frozenset((f.name, bare(f.type)) for f in type_)
    if pa.types.is_list(type_):
        return ("list", bare(type_.value_type))
    return str(type_)


@given(TYPES, TYPES)
def test_order_does_not_matter(left: pa.DataType, right: pa.DataType) -> None:
    assert bare(unified(left, right)) == bare(unified(right, left))


@given(TYPES)
def test_null_and_the_type_itself_change_nothing(type_: pa.DataType) -> None:
    assert unify_types(type_, type_) == type_
    assert unify_types(pa.null(), type_) == type_


@given(TYPES, TYPES)
def test_the_common_type_holds_both(left: pa.DataType, right: pa.DataType) -> None:
    both = unified(left, right)
    if both is not None:
        assert bare(unify_types(both, left)) == bare(both)
        assert bare(unify_types(both, right)) == bare(both)
        for type_ in (left, right):
            assert cast(pa.nulls(3, type_), both).to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int8(), pa.uint8(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
        (pa.list_(pa.int64(), 2), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (TensorType(pa.float32(), 2), TensorType(pa.float64(), 2), TensorType(pa.float64(), 2)),
        (TensorType(pa.uint8(), 2), TensorType(pa.uint8(), 3), ObjectType()),
        (TensorType(pa.uint8(), 2), TensorType(pa.uint16(), 2), ObjectType()),
        (TensorType(pa.uint8(), 2), pa.list_(pa.uint8()), ObjectType()),
        (ObjectType(), pa.string(), ObjectType()),
        (pa.decimal128(3, 1), pa.decimal128(5, 3), pa.decimal128(5, 3)),
        (pa.decimal128(30, 0), pa.decimal128(20, 20), pa.decimal256(50, 20)),
        (pa.int64(), pa.decimal128(3, 2), pa.decimal128(22, 2)),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "Europe/Helsinki"), pa.timestamp("us", "+05:30"), pa.timestamp("us", "UTC")),
        (pa.duration("ns"), pa.duration("s"), pa.duration("ns")),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.date32(), pa.date64(), pa.date32()),
    ],
)
def test_common_types(left: pa.DataType, right: pa.DataType, both: pa.DataType) -> None:
    assert unify_types(left, right) == both
    assert unify_types(right, left) == both


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int64()),
        (pa.int64(), pa.uint64()),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.timestamp("s"), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("s", "UTC")),
        (pa.timestamp("s"), pa.duration("s")),
        (pa.decimal128(3, 1), pa.float64()),
        (pa.decimal256(70, 0), pa.decimal256(70, 60)),
        (pa.decimal128(3, 1), pa.bool_()),
        (TensorType(pa.uint8(), 2), pa.string()),
    ],
)
def test_quarrels(left: pa.DataType, right: pa.DataType) -> None:
    with pytest.raises(TypeQuarrelError):
        unify_types(left, right)


def test_a_quarrel_names_the_nested_field() -> None:
    with pytest.raises(TypeQuarrelError) as caught:
        unify_types(pa.struct({"b": pa.list_(pa.int64())}), pa.struct({"b": pa.list_(pa.string())}), "a")
    assert caught.value.column == "a.b[]"


def test_schemas_are_unified_in_order_of_appearance() -> None:
    a = pa.schema({"id": pa.int64(), "x": pa.null()})
    b = pa.schema({"y": pa.string(), "x": pa.bool_()})
    assert unify_schemas([a, b]) == pa.schema({"id": pa.int64(), "x": pa.bool_(), "y": pa.string()})


def test_conform_fills_and_widens() -> None:
    batch = pa.record_batch({"n": pa.array([{"a": 1}, None]), "l": pa.array([[1], None])})
    wide = pa.schema(
        {
            "late": pa.string(),
            "l": pa.list_(pa.float64()),
            "n": pa.struct({"b": pa.string(), "a": pa.float64()}),
        }
    )
    assert conform(batch, wide).to_pylist() == [
        {"late": None, "l": [1.0], "n": {"b": None, "a": 1.0}},
        {"late": None, "l": None, "n": None},
    ]


def test_conform_widens_decimals_and_times_exactly() -> None:
    helsinki = pa.timestamp("s", "Europe/Helsinki")
    batch = pa.record_batch({"d": pa.array(["1.1"]).cast(pa.decimal128(2, 1)), "t": pa.array([0], helsinki)})
    wide = pa.schema({"d": pa.decimal128(22, 2), "t": pa.timestamp("us", "UTC")})
    done = conform(batch, wide)
    assert done.schema == wide
    assert str(done["d"][0]) == "1.10"
    assert done["t"][0].value == 0


def test_integers_that_floats_would_round_are_a_quarrel() -> None:
    for column in ([2**53], [[2**53]]):
        conform(pa.record_batch({"id": column}), pa.schema({"id": floats_like(column)}))
    for column in ([2**60 + 1], [[2**60 + 1]]):
        with pytest.raises(TypeQuarrelError, match="'id' is .* and .*double.*, which would change a value"):
            conform(pa.record_batch({"id": column}), pa.schema({"id": floats_like(column)}))


def floats_like(column: list[Any]) -> pa.DataType:
    return pa.list_(pa.float64()) if isinstance(column[0], list) else pa.float64()


@pytest.mark.parametrize(
    ("values", "from_", "to"),
    [
        ([[1], None, [2, 3], []], pa.list_(pa.int64()), pa.list_(pa.float64())),
        ([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2), pa.list_(pa.int64())),
        (
            [{"a": [1]}, None, {"a": None}, {"a": []}],
            pa.struct({"a": pa.list_(pa.int8())}),
            pa.struct({"a": pa.list_(pa.int64())}),
        ),
        ([{}, None, {}, {}], pa.struct([]), pa.struct([])),
        (["a", None, "b", "c"], pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
    ],
)
def test_cast_of_slices(values: list[Any], from_: pa.DataType, to: pa.DataType) -> None:
    array = pa.array(values, from_)
    for start in range(4):
        for length in range(5 - start):
            done = cast(array.slice(start, length), to)
            done.validate(full=True)
            assert done.to_pylist() == values[start : start + length]


def test_empty_structs_keep_their_rows() -> None:
    assert len(cast(pa.array([{"a": 1}, {"a": 2}]), pa.struct([]))) == 2


def test_arrays_of_different_kinds_become_objects_unchanged() -> None:
    rows = [np.zeros((2, 2), "uint8"), None, np.ones((2, 2, 3), "uint8")]
    flat, deep = to_column(rows[:2]), to_column(rows[2:])
    both = unify_types(flat.type, deep.type)
    got = from_column(cast(flat, both)) + from_column(cast(deep, both))
    assert [None if a is None else a.shape for a in got] == [(2, 2), None, (2, 2, 3)]
    vector = from_column(cast(to_column([np.array([1, 2], "uint8"), None]), both))
    assert (vector[0].dtype, vector[1]) == (np.uint8, None)


def test_tensors_widen() -> None:
    column = to_column([np.full((1, 2), 0.5, "float32"), None])
    wide = cast(column, TensorType(pa.float64(), 2))
    assert from_column(wide)[0].dtype == np.float64
    assert from_column(cast(pa.nulls(2), wide.type)) == [None, None]
