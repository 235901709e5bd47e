from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.json import lines

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
columns = st.one_of(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.lists(st.none() | st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))), min_size=1),
    st.lists(st.none() | st.booleans(), min_size=1),
)


@given(columns, st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_every_value_reads_back_as_it_was(values: list[Any], name: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    batch = pa.record_batch([pa.array(values)], names=[name]).slice(start)
    rows = [json.loads(line) for line in bytes(lines(batch)).decode().removesuffix("\n").split("\n")]
    assert rows == [{name: v} for v in values[start:]]
    kinds = [type(row[name]) for row in rows]
    assert kinds == [type(v) for v in values[start:]], "integers stay integers, floats stay floats"


def test_what_json_lacks_is_null() -> None:
    batch = pa.record_batch({"x": [math.nan, math.inf, -math.inf, None], "n": [[math.nan], None, [math.inf], []]})
    rows = [json.loads(line, parse_constant=pytest.fail) for line in bytes(lines(batch)).splitlines()]
    assert [r["x"] for r in rows] == [None, math.inf, -math.inf, None]
    assert [r["n"] for r in rows] == [[None], None, [math.inf], []]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([b"\x00\xff"]), {"base64": "AP8="}),
        (pa.array([[b"\x00\xff"]]), [{"base64": "AP8="}]),
        (pa.array([dt.date(2024, 2, 29)]), "2024-02-29"),
        (pa.array([[dt.date(2024, 2, 29)]]), ["2024-02-29"]),
        (pa.array([dt.datetime(2024, 2, 29, 12, 0, 1)]), "2024-02-29T12:00:01.000000"),
        (pa.array([dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)]), "2024-02-29T12:00:00.000000Z"),
        (pa.array([dt.timedelta(milliseconds=1500)]), 1.5),
        (pa.array([decimal.Decimal("1.10")]), 1.1),
        (pa.array([{"a": {"b": 1}}]), {"a": {"b": 1}}),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), {"k": 1}),
        (pa.array(["m:1"]).dictionary_encode(), "m:1"),
        (pa.array([[1000]], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00.000001000"]),
        (pa.array([1.5], pa.float16()), 1.5),
        (pa.array([7], pa.uint64()), 7),
        (pa.array(["x"], pa.string_view()), "x"),
        (pa.nulls(1), None),
    ],
)
def test_other_types(column: pa.Array, value: object) -> None:
    assert json.loads(bytes(lines(pa.record_batch({"x": column})))) == {"x": value}


def test_rows_without_columns() -> None:
    from headrace.records.columns import empty_columns

    assert bytes(lines(empty_columns(2))) == b"{}\n{}\n"
    assert bytes(lines(pa.record_batch({"x": pa.array([], pa.int64())}))) == b""
