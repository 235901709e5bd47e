"""Columns as JSON text, encoded by the column wherever Arrow can.

The rules: integers and decimals keep every digit; floats are the shortest text that reads back the same, and NaN and
infinities, which JSON lacks, are null; dates and times are ISO 8601; durations are seconds; bytes are
`{"base64": "…"}`; lists, structs and maps are arrays and objects, and so are numpy arrays, whatever their dimensions;
null is null.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.alike import without_arrays
from headrace.records.columns import from_column, has_extension
from headrace.records.types import is_bytes, is_text

NEEDS_ESCAPING = r'["\\\x00-\x1f\x7f]'
SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def json_texts(array: pa.Array) -> pa.Array:
    r"""Return the JSON text of every value; null stays null (an Arrow null, for the caller to write as it likes).

    >>> json_texts(pa.array([1.0, None, float("nan")])).to_pylist()
    ['1.0', None, None]
    >>> json_texts(pa.array(["line\nbreak", ""])).to_pylist()
    ['"line\\nbreak"', '""']
    """
    type_ = array.type
    if pa.types.is_null(type_):
        return pa.nulls(len(array), pa.large_string())
    if pa.types.is_dictionary(type_):
        return json_texts(array.dictionary_decode())
    if is_text(type_):
        return _texts(array.cast(pa.large_string()))
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return array.cast(pa.large_string())
    if pa.types.is_floating(type_):
        return _floats(array)
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return _quoted(array.cast(pa.string()))
    if pa.types.is_timestamp(type_):
        return _quoted(iso_texts(array))
    if pa.types.is_duration(type_):
        return _floats(seconds(array))
    if is_bytes(type_) or pa.types.is_fixed_size_binary(type_):
        return joined('{"base64": "', base64_texts(array), '"}')
    return _by_value(array)


def iso_texts(array: pa.Array) -> pa.Array:
    """Return timestamps as ISO 8601 text, in UTC ("Z") where they have a zone.

    >>> iso_texts(pa.array([0], pa.timestamp("s", "Europe/Helsinki"))).to_pylist()
    ['1970-01-01T00:00:00Z']
    """
    utc = array.cast(pa.timestamp(array.type.unit, "UTC")) if array.type.tz else array
    return pc.replace_substring(utc.cast(pa.large_string()), " ", "T", max_replacements=1)


def seconds(array: pa.Array) -> pa.Array:
    """Return durations in seconds."""
    return pc.divide(array.cast(pa.int64()).cast(pa.float64(), safe=False), float(SECONDS[array.type.unit]))


def base64_texts(array: pa.Array) -> pa.Array:
    """Return bytes as base64 text."""
    encoded = [None if v is None else base64.b64encode(v).decode("ascii") for v in array.to_pylist()]
    return pa.array(encoded, type=pa.large_string())


def plain(value: Any) -> Any:
    """Return a Python value with every float that JSON lacks as None, so that nested values follow the same rules."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _by_value(array: pa.Array) -> pa.Array:
    if pa.types.is_decimal(array.type):
        return array.cast(pa.string()).cast(pa.large_string())
    if pa.types.is_map(array.type):
        values = array.to_pylist(maps_as_pydicts="strict")
    else:
        values = _nested_values(array)
    texts = [None if v is None else json.dumps(plain(v), ensure_ascii=False) for v in values]
    return pa.array(texts, type=pa.large_string())


def _nested_values(array: pa.Array) -> list[Any]:
    if has_extension(array.type):
        return [without_arrays(value) for value in from_column(array)]
    try:
        return list(array.to_pylist(maps_as_pydicts="lossy"))
    except ValueError:  # nanoseconds that Python's datetime cannot hold
        return list(_micro(array).to_pylist(maps_as_pydicts="lossy"))


def _micro(array: pa.Array) -> pa.Array:
    return pc.cast(array, options=pc.CastOptions(target_type=_micro_type(array.type), allow_time_truncate=True))


def _micro_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.large_list(_micro_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(_micro_type(f.type)) for f in type_])
    return type_


def _texts(array: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(array, NEEDS_ESCAPING)
    if not pc.any(special).as_py():
        return _quoted(array)
    texts = [None if v is None else json.dumps(v, ensure_ascii=False) for v in array.to_pylist()]
    return pa.array(texts, type=pa.large_string())


def _floats(array: pa.Array) -> pa.Array:
    finite = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
    texts = finite.cast(pa.large_string())
    # A float without a fraction keeps its point, so that a reader that guesses types sees a float.
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(whole, joined(texts, ".0"), texts)


def _quoted(texts: pa.Array) -> pa.Array:
    return joined('"', texts.cast(pa.large_string()), '"')


def joined(*pieces: pa.Array | str, null: str | None = None) -> pa.Array:
    """Return texts put together row by row; nulls are written as `null`, or make the whole row null.

    >>> joined("<", pa.array(["a", None], pa.large_string()), ">").to_pylist()
    ['<a>', None]
    """
    texts = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in (*pieces, "")]
    if null is None:
        return pc.binary_join_element_wise(*texts)
    return pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=null)
