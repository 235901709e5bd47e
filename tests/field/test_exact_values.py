"""Values that users' functions make, through every sink by a real run: what is written is what was made."""

from __future__ import annotations

import datetime as dt
import json
import math
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
