"""Every type of Arrow through every sink by a real run, and back: exactly in Parquet, by the documented rules in text."""

from __future__ import annotations

import base64
import json
import math
import struct
import tempfile
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.records.types import is_text

EXAMPLES = settings(max_examples=10)
EXACT = Context(prec=100)


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0])


def floats(width: Any, **how: Any) -> st.SearchStrategy[float]:
    return st.floats(width=width, **how) | st.sampled_from([-0.0, 1.0, 0.1 if width == 64 else 0.5, math.inf])


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return (st.integers(-top, top) | st.sampled_from([top, -top, 1])).map(lambda n: Decimal(n).scaleb(-scale, EXACT))


text = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [
        "",
        "NA",
        "null",
        "007",
        "1e5",
        "nan",
        "a\x00b",
        "two\nlines",
        "\r\n",
        'say "hi", twice',
        "\ufeffBOM",
        "\U0001f40d",
        " x ",
        "\\",
    ]
)
small = st.integers(-100, 100)
ticks = st.integers(-(2**40), 2**40)

NUMBERS = {
    **{f"int{b}": (getattr(pa, f"int{b}")(), integers(b, signed=True)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), integers(b, signed=False)) for b in (8, 16, 32, 64)},
    "float16": (pa.float16(), floats(16)),
    "float32": (pa.float32(), floats(32)),
    "float64": (pa.float64(), floats(64)),
    "decimal32": (pa.decimal32(7, 2), decimals(7, 2)),
    "decimal64": (pa.decimal64(16, 9), decimals(16, 9)),
    "decimal128": (pa.decimal128(38, 30), decimals(38, 30)),
    "decimal256": (pa.decimal256(76, 0), decimals(76, 0)),
    "bool": (pa.bool_(), st.booleans()),
    "null": (pa.null(), st.none()),
}
TIMES = {
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32s": (pa.time32("s"), st.integers(0, 86_399)),
    "time32ms": (pa.time32("ms"), st.integers(0, 86_399_999)),
    "time64us": (pa.time64("us"), st.integers(0, 86_399_999_999)),
    "time64ns": (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    **{f"timestamp_{unit}": (pa.timestamp(unit), ticks) for unit in ("ms", "us", "ns")},
    "timestamp_s": (pa.timestamp("s"), st.integers(-62_135_596_800, 253_402_300_799)),
    "utc": (pa.timestamp("us", "UTC"), ticks),
    "zone": (pa.timestamp("ns", "Europe/Helsinki"), ticks | st.sampled_from([1_698_537_600 * 10**9])),
    "offset": (pa.timestamp("ms", "+05:30"), ticks),
    **{f"duration_{unit}": (pa.duration(unit), integers(64, signed=True)) for unit in ("s", "ms", "us", "ns")},
}
TEXT = {
    "string": (pa.string(), text),
    "large_string": (pa.large_string(), text),
    "string_view": (pa.string_view(), text),
    "binary": (pa.binary(), st.binary()),
    "large_binary": (pa.large_binary(), st.binary()),
    "binary_view": (pa.binary_view(), st.binary()),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), text),
}
NESTED = {
    "list": (pa.list_(pa.int64()), st.lists(st.none() | integers(64, signed=True))),
    "large_list": (pa.large_list(pa.string()), st.lists(st.none() | text)),
    "list_view": (pa.list_view(pa.float32()), st.lists(floats(32, allow_nan=False))),
    "fixed_list": (pa.list_(pa.float64(), 2), st.lists(floats(64, allow_nan=False), min_size=2, max_size=2)),
    "struct": (
        pa.struct({"a": pa.uint64(), "when": pa.timestamp("us", "UTC"), "raw": pa.binary()}),
        st.fixed_dictionaries({"a": integers(64, signed=False), "when": st.none() | ticks, "raw": st.binary()}),
    ),
    "map": (
        pa.map_(pa.string(), pa.decimal128(9, 2)),
        st.dictionaries(text, decimals(9, 2)).map(lambda d: list(d.items())),
    ),
    "map_int": (
        pa.map_(pa.int64(), pa.list_(pa.bool_())),
        st.dictionaries(small, st.lists(st.booleans())).map(lambda d: list(d.items())),
    ),
    "mix": (
        pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_(pa.int8())), "d": pa.duration("ns")})),
        st.lists(st.fixed_dictionaries({"m": st.just([("k", [1, None])]), "d": integers(64, signed=True)})),
    ),
    "vector": (pa.list_(pa.float32()), st.just([0.5] * 3_000)),
}
GROUPS = {"numbers": NUMBERS, "times": TIMES, "text": TEXT, "nested": NESTED}


@st.composite
def tables(draw: Any, group: str) -> pa.Table:
    rows = draw(st.integers(1, 4))
    columns = {}
    for name, (type_, values) in GROUPS[group].items():
        found = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[name] = pa.array([_fit(v, type_) for v in found], type_)
    return pa.table({"row": list(range(rows)), **columns})


def _fit(value: Any, type_: pa.DataType) -> Any:
    return np.float16(value) if value is not None and pa.types.is_float16(type_) else value


def exact(value: Any) -> Any:
    """Return a value in a form that equals only the very same: NaN equals itself, -0.0 does not equal 0.0."""
    if isinstance(value, (float, np.floating)):
        return struct.pack(">d", value) if not math.isnan(value) else "NaN"
    if isinstance(value, dict):
        return {k: exact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(v) for v in value]
    return value


def values_of(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        column = pc.cast(column, pa.int64())
    return [exact(v) for v in column.to_pylist()]


def written(table: pa.Table, kind: str, folder: str, **options: Any) -> hr.RunResult:
    result: hr.RunResult = getattr(hr.from_arrow(table), f"write_{kind}")(f"{folder}/out", **options).run()
    assert result.rows_written == table.num_rows
    return result


PARQUET_TYPES = {  # the few that Parquet has not
    "date64": pa.date32(),
    "timestamp_s": pa.timestamp("ms"),
    "time32s": pa.time32("ms"),
    "fixed_list": pa.list_(pa.float64()),
}


@pytest.mark.parametrize("group", GROUPS)
@given(st.data())
@EXAMPLES
def test_parquet_gives_back_what_it_was_given(group: str, data: Any) -> None:
    table = data.draw(tables(group))
    with tempfile.TemporaryDirectory() as folder:
        written(table, "parquet", folder)
        for found in (pq.read_table(f"{folder}/out"), hr.read_parquet(f"{folder}/out").to_arrow()):
            for name in table.column_names:
                assert found[name].type == PARQUET_TYPES.get(name, table[name].type)
                wanted = table[name].cast(found[name].type) if name in PARQUET_TYPES else table[name]
                assert values_of(found[name]) == values_of(wanted), name


@pytest.mark.parametrize("group", GROUPS)
@given(st.data())
@EXAMPLES
def test_json_gives_back_what_it_was_given_to_who_says_the_types(group: str, data: Any) -> None:
    table = data.draw(tables(group))
    dtypes = {field.name: field.type for field in table.schema}
    with tempfile.TemporaryDirectory() as folder:
        written(table, "json", folder)
        found = hr.read_json(f"{folder}/out", dtypes=dtypes).to_arrow()
        assert found.schema.types == table.schema.types
        for name in table.column_names:
            wanted = [None if v == "NaN" else v for v in values_of(table[name])]
            assert values_of(found[name]) == wanted, name
        with open(f"{folder}/out/part-00000.jsonl", encoding="utf-8") as file:
            for line in file:
                json.loads(line, parse_constant=pytest.fail)


def csv_type(type_: pa.DataType) -> pa.DataType:
    """Return the type to read a column back with: what cells have no form of their own for is text."""
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return type_
    return pa.string()


@pytest.mark.parametrize("group", GROUPS)
@given(st.data())
@EXAMPLES
def test_csv_gives_back_what_it_was_given_to_who_says_the_types(group: str, data: Any) -> None:
    table = data.draw(tables(group))
    dtypes = {field.name: csv_type(field.type) for field in table.schema}
    with tempfile.TemporaryDirectory() as folder:
        written(table, "csv", folder)
        hr.from_arrow(table).write_json(f"{folder}/json").run()
        with open(f"{folder}/json/part-00000.jsonl", encoding="utf-8") as file:
            in_json = [json.loads(line) for line in file]
        found = hr.read_csv(f"{folder}/out", dtypes=dtypes).to_arrow()
        for name in table.column_names:
            wanted, cells, type_ = values_of(table[name]), values_of(found[name]), table[name].type
            if pa.types.is_nested(type_):
                cells = [json.loads(c) if c else None for c in cells]
                wanted = [row[name] for row in in_json]
            elif dtypes[name] == pa.string():
                wanted = ["" if v is None else v for v in wanted]  # text has no null in CSV
                if name != "dictionary" and not is_text(type_):
                    wanted = [base64.b64encode(v).decode() if v else "" for v in wanted]
            assert cells == wanted, name
