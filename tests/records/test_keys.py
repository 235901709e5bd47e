"""Keys of rows: equal values have equal keys however they are stored, and different values have different ones."""

import datetime
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.records.columns import to_column
from headrace.records.keys import keys_of, layout, row_bytes

scalars = st.none() | st.integers(-(2**63), 2**63 - 1)
texts = st.sampled_from([None, "", "a", "b", "ab", "ä", "\0", "\0\0"])
VALUES = {
    pa.int64(): scalars,
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.bool_(): st.none() | st.booleans(),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.string_view(): texts,
    pa.binary(): st.none() | st.binary(max_size=5),
    pa.decimal128(20, 2): st.none() | st.decimals(-1000, 1000, places=2),
    pa.timestamp("us", "UTC"): st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
    pa.list_(pa.string()): st.none() | st.lists(texts, max_size=3),
    pa.large_list(pa.list_(pa.int64())): st.none() | st.lists(st.none() | st.lists(scalars, max_size=2), max_size=3),
    pa.list_(pa.int64(), 2): st.none() | st.lists(scalars, min_size=2, max_size=2),
    pa.struct({"a": pa.int64(), "b": pa.string()}): st.none() | st.fixed_dictionaries({"a": scalars, "b": texts}),
    pa.map_(pa.string(), pa.int64()): st.none() | st.lists(st.tuples(st.sampled_from("ab"), scalars), max_size=2),
    pa.list_view(pa.int64()): st.none() | st.lists(scalars, max_size=2),
    pa.null(): st.none(),
}


def keys(column: pa.Array) -> list[bytes]:
    return keys_of(row_bytes([column], len(column)), salt=layout(["x"], [column]).encode())


@pytest.mark.parametrize("type_", list(VALUES), ids=str)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_two_keys_are_equal_exactly_if_the_values_are_whatever_slice_they_lie_in(data, type_) -> None:
    values = data.draw(st.lists(VALUES[type_], min_size=1, max_size=12))
    values += data.draw(st.lists(st.sampled_from(values), max_size=4))
    column = pa.array(values, type_)
    found = keys(column)
    shown = [repr(value) for value in column.to_pylist()]  # 0.0 and -0.0 are told apart
    for (a, one), (b, other) in itertools.combinations(zip(found, shown, strict=True), 2):
        assert (a == b) == (one == other)
    first = data.draw(st.integers(0, len(values)))
    assert keys(column.slice(first)) == found[first:]
    assert keys(pa.concat_arrays([column.slice(first), column.slice(0, 0)])) == found[first:]


def test_the_kind_of_storage_makes_no_difference_to_text() -> None:
    values = ["a", None, "", "ä"]
    same = [pa.array(values, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    same.append(pa.array(values).dictionary_encode())
    assert len({tuple(keys(column)) for column in same}) == 1


def test_what_lies_under_nulls_makes_no_difference() -> None:
    mask = np.array([False, True])
    for one, other in (([1, 2], [1, 3]), (["a", "b"], ["a", "c"]), ([[1], [2]], [[1], [2, 3]])):
        assert keys(_masked(one, mask)) == keys(_masked(other, mask))


def _masked(values, mask) -> pa.Array:
    plain = pa.array(values)
    validity = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    children = [plain.values] if pa.types.is_list(plain.type) else []
    return pa.Array.from_buffers(
        plain.type, len(plain), [validity, *plain.buffers()[1 : plain.type.num_buffers]], children=children
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1]), pa.array([1.0])),
        (pa.array(["1"]), pa.array([b"1"])),
        (pa.array([1], pa.int64()), pa.array([1], pa.timestamp("s"))),
        (pa.array([decimal.Decimal("1.0")]), pa.array([decimal.Decimal("1.00")])),
        (pa.array([None], pa.string()), pa.array([""])),
        (pa.array([[]], pa.list_(pa.string())), pa.array([[""]])),
    ],
)
def test_values_of_other_types_are_other_values(one, other) -> None:
    assert keys(one) != keys(other)


def test_columns_do_not_run_into_one_another() -> None:
    left, right = ([pa.array(["ab"]), pa.array(["c"])], [pa.array(["a"]), pa.array(["bc"])])
    assert keys_of(row_bytes(left, 1), salt=b"") != keys_of(row_bytes(right, 1), salt=b"")


def test_tensors_count_by_shape_and_content() -> None:
    stack = np.arange(24).reshape(4, 2, 3)
    a, b, c, d = keys(to_column(stack))
    assert len({a, b, c, d}) == 4
    assert keys(to_column(stack).slice(2)) == [c, d]
    assert keys(to_column(stack.reshape(4, 3, 2)))[0] != a


def test_rows_without_columns_are_all_alike() -> None:
    a, b = keys_of(row_bytes([], 2), salt=b"")
    assert a == b
