"""Values that users' functions make, through every sink by a real run: what is written is what was made."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import SinkError
from tests.field.running import rows_in

HELSINKI, NEW_YORK = ZoneInfo("Europe/Helsinki"), ZoneInfo("America/New_York")
NOON = dt.datetime(2024, 6, 1, 12, tzinfo=HELSINKI)
VALUES: dict[str, list[Any]] = {
    "decimals of any scale": [Decimal("1.10"), None, Decimal("-100.5"), Decimal("1E+3")],
    "times with zones": [
        NOON,
        None,
        NOON.astimezone(NEW_YORK),
        NOON.astimezone(dt.timezone(dt.timedelta(minutes=330))),
    ],
    "none first, then integers": [None, None, 1, 2**62 + 1],
    "integers of 64 bits without a sign": [2**63, None, 2**64 - 1, 0],
    "numpy's numbers": [np.int8(-1), np.float32(0.1), np.uint64(7), None],
    "numpy's times": [np.datetime64("2024-01-01T00:00:00.123456789"), None, None, None],
    "pandas' times": [pd.Timestamp("2024-01-01T00:00:00.123456789"), pd.NaT, None, None],
    "dates": [dt.date(1, 1, 1), None, dt.date.max, dt.date(2024, 2, 29)],
    "nested": [[{"id": 2**62 + 1, "tags": []}], None, [], [{"id": None, "tags": ["x", None]}]],
    "bytes": [b"", None, bytearray(b"\xff"), b"\x00"],
    "text": ["", None, 'a "b",\r\n\x00', "007"],
}
KINDS = ["parquet", "json", "csv"]


def as_made(value: Any) -> Any:
    """Return a value as pyarrow would give it back."""
    if value is pd.NaT:
        return None
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize("name", VALUES)
def test_parquet_holds_what_functions_made_whatever_the_batches(name: str, num_rows: int) -> None:
    values = VALUES[name]
    ds = hr.range(4).map_batches(
        lambda rows: [{"x": values[row["id"]]} for row in rows], batch_format="rows", batch_size=num_rows
    )
    ds.write_parquet("out").run()
    assert pq.read_table("out")["x"].to_pylist() == [as_made(v) for v in values]


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize("name", VALUES)
def test_text_holds_the_same_values(name: str, kind: str) -> None:
    values = VALUES[name]
    ds = hr.range(4).map(lambda row: {"id": row["id"], "x": values[row["id"]]})
    ds.write_parquet("exact").run()
    type_ = pq.read_table("exact").schema.field("x").type
    getattr(ds, f"write_{kind}")("out").run()
    if kind == "csv" and (pa.types.is_nested(type_) or pa.types.is_binary(type_)):
        read = hr.read_csv("out", dtypes={"x": "string"}).take(4)
        assert [row["x"] for row in read][1] == ""
        return
    read = getattr(hr, f"read_{kind}")("out", dtypes={"x": type_}).to_arrow()["x"].to_pylist()
    missing = "" if kind == "csv" and pa.types.is_string(type_) else None
    assert read == [missing if v is None else v for v in map(as_made, values)]


def test_nan_and_infinity() -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, None]
    ds = hr.range(5).map(lambda row: {"id": row["id"], "x": values[row["id"]]})
    for kind in KINDS:
        getattr(ds, f"write_{kind}")(kind).run()
    in_parquet, in_csv = (
        getattr(hr, f"read_{kind}")(kind, **more).to_arrow()["x"].to_pylist()
        for kind, more in (("parquet", {}), ("csv", {"dtypes": {"x": "float64"}}))
    )
    assert list(map(repr, in_parquet)) == list(map(repr, in_csv)) == list(map(repr, values))
    in_json = [row["x"] for row in hr.read_json("json").take(5)]
    assert list(map(repr, in_json)) == list(map(repr, [None, *values[1:]]))


BAD: dict[str, tuple[Any, Any, list[str], str]] = {  # a sound value, a bad one, in which files it is bad, and why
    "half a character": ("sound", "\ud800", KINDS, "lone surrogate.*encode"),
    "half a character inside": ({"a": ["x"]}, {"a": ["\udfff"]}, KINDS, "lone surrogate"),
    "a set": ([1], {1, 2}, KINDS, r"Python objects \(set\)"),
    "an integer beyond 64 bits": (7, 2**70 + 1, ["parquet"], "an integer beyond 64 bits"),
    "no number as a decimal": (Decimal("1.5"), Decimal("NaN"), ["parquet"], "Decimal"),
    "keys that are no text": ({"a": "x"}, {1: "x"}, ["parquet"], "dict"),
    "a time of no zone among others": (NOON, dt.datetime(2024, 6, 1), ["parquet"], "tz=Europe/Helsinki"),
    "text among numbers": (1, "x", ["parquet"], "is string here"),
    "a number too long to write": (1, 10**5_000, KINDS, "thousands of digits"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_a_value_that_a_file_cannot_hold_costs_its_row(name: str, kind: str) -> None:
    sound, bad, bad_in, why = BAD[name]
    values = [sound, bad, sound]
    ds = hr.range(3).map(lambda row: {"id": row["id"], "x": values[row["id"]]})
    result = getattr(ds, f"write_{kind}")("out").run(on_error="dead_letter")
    if kind not in bad_in:
        assert (result.rows_written, result.failed) == (3, 0)
        return
    assert (result.rows_written, result.failed) == (2, 1)
    assert [row["id"] for row in hr_rows(kind)] == [0, 2]
    (letter,) = rows_in("out/_dead_letters")
    assert re.search(why, letter["message"]), letter["message"]
    assert letter["position"] == 1
    assert letter["row"]["id"] == 1
    with pytest.raises(SinkError, match="'x'"):
        getattr(ds, f"write_{kind}")("again").run()


def hr_rows(kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = getattr(hr, f"read_{kind}")("out").take(99)
    return rows


FAR = pa.array([0, 2**40], pa.timestamp("s"))
TWICE = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
HALF_DAY = pa.array([0, 1]).view(pa.date64())
COLUMNS = {
    "a time beyond calendars": (FAR, ["json", "csv"]),
    "a key twice": (TWICE, ["json", "csv"]),
    "half a day": (HALF_DAY, KINDS),
    "seconds beyond milliseconds": (pa.array([0, 2**62], pa.timestamp("s")), KINDS),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_cell_of_a_table_that_a_file_cannot_hold_costs_its_row(name: str, kind: str) -> None:
    column, bad_in = COLUMNS[name]
    ds = hr.from_arrow(pa.table({"id": [0, 1], "x": column}))
    result = getattr(ds, f"write_{kind}")("out").run(on_error="dead_letter")
    assert result.failed == (kind in bad_in)
    assert [row["id"] for row in hr_rows(kind)] == ([0] if kind in bad_in else [0, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())])])
def test_types_that_files_have_nothing_for_are_refused_before_anything_runs(kind: str, type_: pa.DataType) -> None:
    seen: list[int] = []
    table = pa.table({"id": [1], "x": pa.nulls(1, type_)})
    ds = hr.from_arrow(table).add_column("y", lambda row: seen.append(row["id"]), isolation="thread")
    with pytest.raises(SinkError, match="column 'x' is .*cannot hold.*drop"):
        getattr(ds, f"write_{kind}")("out").run()
    assert not list(Path("out").glob("part-*"))


PAIRS = pa.table(
    {
        "id": [0, 1, 2],
        "m": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "deep": pa.array([[{"m": [(1, "x")]}], [], None], pa.list_(pa.struct({"m": pa.map_(pa.int64(), pa.string())}))),
    }
)


@pytest.mark.parametrize("form", ["numpy", "pandas", "rows", "pyarrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_maps_stay_maps_through_batches_of_any_form(kind: str, form: Any) -> None:
    ds = hr.from_arrow(PAIRS).map_batches(lambda batch: batch, batch_format=form)
    getattr(ds, f"write_{kind}")("out").run()
    if kind == "parquet":
        assert pq.read_table("out").equals(PAIRS)
    elif kind == "json":
        dtypes = {field.name: field.type for field in PAIRS.schema}
        assert hr.read_json("out", dtypes=dtypes).to_arrow() == PAIRS
    else:
        found = hr.read_csv("out").take(3)
        assert [json.loads(row["m"]) if row["m"] else None for row in found] == [{"a": 1, "b": None}, None, {}]


def test_maps_stay_maps_in_rows_that_are_changed() -> None:
    def more(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "m": [*(row["m"] or []), ("c", 2**62 + 1)]}

    hr.from_arrow(PAIRS).map(more).write_parquet("out").run()
    found = pq.read_table("out")["m"]
    assert found.type == PAIRS["m"].type
    assert found.to_pylist() == [[("a", 1), ("b", None), ("c", 2**62 + 1)], [("c", 2**62 + 1)], [("c", 2**62 + 1)]]


def test_identifiers_beside_nulls_stay_exact_in_pandas() -> None:
    ds = hr.from_items([{"id": 2**60 + 1}, {"id": None}])
    assert ds.to_pandas()["id"].tolist() == [2**60 + 1, None]
    ds.map_batches(lambda frame: frame, batch_format="pandas").write_parquet("out").run()
    assert pq.read_table("out")["id"].to_pylist() == [2**60 + 1, None]


def test_identifiers_are_never_rounded_to_go_with_floats_that_come_later() -> None:
    values = [2**60 + 1, 2, 0.5]
    ds = hr.range(3).map_batches(
        lambda rows: [{"x": values[row["id"]]} for row in rows], batch_format="rows", batch_size=1
    )
    with pytest.raises(SinkError, match="column 'x' is int64 and double, which would change a value.*one type"):
        ds.write_parquet("out", rows_per_part=1).run()
    assert [pq.read_table(part)["x"].to_pylist() for part in sorted(Path("out").glob("part-*"))] == [
        [v] for v in values
    ]


def test_identifiers_without_a_sign_go_with_small_ones() -> None:
    values = [7, 2**63, None, 2**64 - 1]
    ds = hr.range(4).map_batches(
        lambda rows: [{"x": values[row["id"]]} for row in rows], batch_format="rows", batch_size=1
    )
    ds.write_parquet("out", rows_per_part=1).run()
    assert pq.read_table("out")["x"].to_pylist() == values
    assert pq.read_table("out").schema.field("x").type == pa.uint64()
