from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.records.columns import from_column
from headrace.records.tensors import ObjectType
from headrace.records.values import column_of

HELSINKI, NEW_YORK = ZoneInfo("Europe/Helsinki"), ZoneInfo("America/New_York")
NANO = pd.Timestamp("2024-01-01T00:00:00.123456789", tz="Europe/Helsinki")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([None, 1, 2**62], pa.int64()),
        ([None, 2**63], pa.uint64()),
        ([2**60, 0.5], pa.float64()),
        ([Decimal("1.10"), Decimal("100.5"), None], pa.decimal128(5, 2)),
        ([dt.datetime(2024, 1, 1, tzinfo=HELSINKI)], pa.timestamp("us", "Europe/Helsinki")),
        (
            [dt.datetime(2024, 1, 1, tzinfo=HELSINKI), dt.datetime(2024, 1, 1, tzinfo=NEW_YORK)],
            pa.timestamp("us", "UTC"),
        ),
        ([dt.datetime.max, dt.datetime.min], pa.timestamp("us")),
        ([np.datetime64("2024-01-01T00:00:00.123456789"), None], pa.timestamp("ns")),
        ([NANO, None], pa.timestamp("ns", "Europe/Helsinki")),
        ([pd.Timedelta(1, "ns"), None], pa.duration("ns")),
        ([np.float32(0.1), None], pa.float64()),
        ([np.int8(1), 2**40], pa.int64()),
        ([{"a": 1}, {"a": None}], pa.struct({"a": pa.int64()})),
        ([[1, None], None, []], pa.list_(pa.int64())),
        ([Colour.RED], pa.string()),
        ([bytearray(b"x"), None], pa.binary()),
    ],
)
def test_values_with_a_type_of_their_own(values: list[Any], type_: pa.DataType) -> None:
    column = column_of(values)
    assert column.type == type_
    assert from_column(column) == values


@pytest.mark.parametrize(
    "values",
    [
        [2**60 + 1, 0.5],
        [1, 2**70],
        ["\ud800"],
        [{1}],
        [[frozenset([1])]],
        [{"a": [{1}]}],
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=HELSINKI)],
        [{"at": dt.datetime(2024, 1, 1)}, {"at": dt.datetime(2024, 1, 1, tzinfo=HELSINKI)}],
        [dt.time(1, tzinfo=dt.UTC)],
        [Decimal("Infinity")],
        [Decimal(1), True],
        [{1: 2}],
        [{b"a": 1}],
        [[1.5, True]],
        [{"a": [1, True]}],
        ["a", bytearray(b"a")],
        [1j],
        [np.longdouble(1) / 3],
        [dt.timedelta.max],
    ],
)
def test_values_that_arrow_would_change_or_refuse_stay_objects(values: list[Any]) -> None:
    column = column_of(values)
    assert isinstance(column.type, ObjectType)
    found = from_column(column)
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


def test_pandas_nulls_are_null() -> None:
    assert from_column(column_of([pd.NaT, pd.Timestamp("2024-01-01")])) == [None, dt.datetime(2024, 1, 1)]
    assert from_column(column_of([pd.NA, 1])) == [None, 1]


def test_arrays_of_times_and_of_odd_numbers() -> None:
    days = np.array(["2024-01-01", "2024-01-02"], "M8[D]")
    assert from_column(column_of([days, None])) == [[dt.date(2024, 1, 1), dt.date(2024, 1, 2)], None]
    big = [np.array([2**60 + 1]), np.array([0.5])]
    assert isinstance(column_of(big).type, ObjectType)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.just("\ud800"),
    st.binary(),
    st.decimals(),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, dt.UTC, HELSINKI, dt.timezone(dt.timedelta(minutes=330))])),
    st.times(timezones=st.sampled_from([None, dt.UTC])),
    st.timedeltas(),
    st.builds(lambda n: {n}, st.integers()),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab") | st.integers(0, 1), inner, max_size=2)
    ),
    max_leaves=4,
)


def exact(value: Any) -> Any:
    """Return a value in a form that equals only the very same, but for what columns of one type may do to it.

    Whole numbers beside floats and decimals may be such of the same value, keys that a dict lacks null, zones others.
    """
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("number", str(value) if value != value or (value == 0.0 and str(value)[0] == "-") else value)
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return ("number" if whole else "decimal", str(value) if value.is_nan() else value)
    if isinstance(value, dt.datetime):
        return ("moment", value.tzinfo is None, value)
    return (type(value).__name__, value)


@given(
    st.lists(VALUES, min_size=1, max_size=4)
    | st.lists(st.one_of(st.integers(), st.floats(), st.booleans()), min_size=1, max_size=4)
)
@example([[0, Decimal("0")]])
@example([dt.datetime(2000, 1, 1), dt.timedelta(0)])
@example([pd.Timestamp(2000, 1, 1), dt.date(2000, 1, 1)])
@settings(max_examples=300)
def test_what_goes_into_a_column_comes_out(values: list[Any]) -> None:
    assert [exact(value) for value in from_column(column_of(values))] == [exact(value) for value in values]
