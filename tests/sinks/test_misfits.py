from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.records.columns import to_column
from headrace.records.tensors import object_array
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.misfits import parquet_misfits, text_misfits
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.sink import ChoosySink

FAR = pa.array([0, 2**40, -(2**40)], pa.timestamp("s"))
MAPS = pa.array([[("a", 1), ("b", 1)], [], None, [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))


def rows_of(misfits: dict[int, str]) -> list[int]:
    return sorted(misfits)


@pytest.mark.parametrize("sink", [CsvSink, JsonSink, ParquetSink])
def test_sinks_say_which_rows_they_cannot_hold(sink: type) -> None:
    batch = pa.record_batch({"id": [1, 2, 3], "tags": to_column([[1], {1}, [2]])})
    assert isinstance(sink("out"), ChoosySink)
    (why,) = sink("out").misfits(batch).values()
    assert rows_of(sink("out").misfits(batch)) == [1]
    assert "column 'tags' holds Python objects (set)" in why
    assert "turn them into" in why
    assert sink("out").misfits(batch.select(["id"])) == {}


@pytest.mark.parametrize(
    ("values", "text", "columns"),
    [
        (["a", "\ud800", None], [1], [1]),
        ([1, 2**70 + 1, 2.5], [], [1]),
        ([{"a": "x"}, {"a": "\udfff"}, {1: "b"}], [1], [1, 2]),
        ([Decimal("1.5"), Decimal("NaN"), Decimal("-Infinity")], [], [1, 2]),
        ([dt.time(1), dt.time(1, tzinfo=dt.UTC)], [], [1]),
        ([{1: "a", "1": "b"}, {"1": "b"}], [0], [0]),
        ([1, 10**5000], [1], [1]),
    ],
)
def test_python_objects(values: list[Any], text: list[int], columns: list[int]) -> None:
    batch = pa.record_batch({"x": to_column(values)})
    assert rows_of(text_misfits(batch)) == text
    assert rows_of(parquet_misfits(batch)) == columns


def test_objects_that_hold_themselves() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "nesting without an end" in text_misfits(pa.record_batch({"x": object_array([endless])}))[0]


@pytest.mark.parametrize(
    "column",
    [
        FAR,
        FAR.cast(pa.timestamp("s", "+05:30")),
        pa.StructArray.from_arrays([FAR], ["at"]),
        pa.ListArray.from_arrays([0, 1, 2, 3], FAR),
        pa.FixedSizeListArray.from_arrays(FAR, 1),
        FAR.dictionary_encode(),
        pa.array([0, 2_932_897, -719_163], pa.int32()).view(pa.date32()),
        pa.array([0, 2_932_897 * 86_400_000, -719_163 * 86_400_000]).view(pa.date64()),
        pa.array([0, 253_402_300_800 * 1_000_000, -62_135_596_800 * 1_000_000 - 1], pa.timestamp("us")),
    ],
)
def test_times_that_no_calendar_has(column: pa.Array) -> None:
    assert rows_of(text_misfits(pa.record_batch({"at": column}))) == [1, 2]
    assert rows_of(text_misfits(pa.record_batch({"at": column.slice(1)}))) == [0, 1]
    assert parquet_misfits(pa.record_batch({"at": column})) == {}


def test_the_last_moments_that_calendars_have() -> None:
    ends = [dt.datetime.min, dt.datetime.max, None]
    assert text_misfits(pa.record_batch({"at": pa.array(ends, pa.timestamp("us"))})) == {}
    assert text_misfits(pa.record_batch({"on": pa.array([dt.date.min, dt.date.max, None])})) == {}


def test_seconds_that_milliseconds_cannot_count() -> None:
    column = pa.array([2**53, 2**62, -(2**62), None], pa.timestamp("s"))
    assert rows_of(parquet_misfits(pa.record_batch({"at": column}))) == [1, 2]


def test_dates_with_a_time_of_day() -> None:
    column = pa.array([0, 1, None, 86_400_000]).view(pa.date64())
    for misfits in (text_misfits, parquet_misfits):
        assert rows_of(misfits(pa.record_batch({"on": column}))) == [1]


def test_maps_with_a_key_twice() -> None:
    assert rows_of(text_misfits(pa.record_batch({"m": MAPS}))) == [3]
    assert rows_of(text_misfits(pa.record_batch({"m": MAPS.slice(2)}))) == [1]
    assert rows_of(text_misfits(pa.record_batch({"m": pa.StructArray.from_arrays([MAPS], ["in"])}))) == [3]
    assert parquet_misfits(pa.record_batch({"m": MAPS})) == {}
    assert text_misfits(pa.record_batch({"m": MAPS.slice(0, 0)})) == {}
