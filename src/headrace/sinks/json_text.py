"""Columns as JSON text, encoded by the column at any depth.

The rules: integers, decimals and durations (in seconds) keep every digit; floats are the shortest text that reads back
the same, infinities are 1e999, and NaN, which JSON lacks, is null; dates and times are ISO 8601, in UTC where they have
a zone; bytes are `{"base64": "…"}`; lists and numpy arrays are arrays; structs and maps are objects; null is null.
Python objects follow the same rules one by one (`headrace.sinks.json_value`).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.columns import from_column
from headrace.records.infinities import INFINITY
from headrace.records.lists import is_any_list, items_of
from headrace.records.tensors import ObjectType, TensorType
from headrace.records.types import is_bytes, is_text
from headrace.sinks.columns import storable_array
from headrace.sinks.json_value import text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEEDS_ESCAPING = r'["\\\x00-\x1f\x7f]'
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def json_texts(array: pa.Array) -> pa.Array:
    r"""Return the JSON text of every value; null stays null (an Arrow null, for the caller to write as it likes).

    >>> json_texts(pa.array([1.0, None, float("-inf")])).to_pylist()
    ['1.0', None, '-1e999']
    >>> json_texts(pa.array([["line\nbreak", ""], None])).to_pylist()
    ['["line\\nbreak", ""]', None]

    Raises:
        ArrowNotImplementedError: JSON has nothing for the type (unions, intervals of months).
    """
    type_ = array.type
    if pa.types.is_null(type_):
        return pa.nulls(len(array), pa.large_string())
    if isinstance(type_, ObjectType):
        values = [None if v is None else text_of(v) for v in from_column(array)]
        return pa.array(values, type=pa.large_string())
    if (plain := plain_array(array)) is not None:
        return json_texts(plain)
    if is_text(type_):
        return _texts(array.cast(pa.large_string()))
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return array.cast(pa.string()).cast(pa.large_string())
    if pa.types.is_floating(type_):
        return _floats(array)
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return _quoted(array.cast(pa.string()))
    if pa.types.is_timestamp(type_):
        return _quoted(iso_texts(array))
    if pa.types.is_duration(type_):
        return json_texts(seconds(array))
    if is_bytes(type_) or pa.types.is_fixed_size_binary(type_):
        return joined('{"base64": "', base64_texts(array), '"}')
    if pa.types.is_struct(type_):
        return _objects(array)
    if is_any_list(type_):
        return _maps(array) if pa.types.is_map(type_) else _lists(array)
    raise pa.ArrowNotImplementedError(f"JSON has nothing for {type_}")


def plain_array(array: pa.Array) -> pa.Array | None:
    """Return the values of a column whose type is a way of storing another's, or another by name; None if it is none.

    >>> plain_array(pa.array(["a", "a"]).dictionary_encode()).to_pylist()
    ['a', 'a']
    """
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(type_):
        return pc.run_end_decode(array)
    if isinstance(type_, (TensorType, pa.FixedShapeTensorType)):
        return storable_array(array)
    if not isinstance(type_, pa.BaseExtensionType) or isinstance(type_, ObjectType):
        return None
    if type_.extension_name == "arrow.uuid":
        return pa.array([None if v is None else str(v) for v in array.to_pylist()], pa.large_string())
    return array.cast(pa.bool_()) if type_.extension_name == "arrow.bool8" else array.storage


def iso_texts(array: pa.Array) -> pa.Array:
    """Return timestamps as ISO 8601 text, in UTC ("Z") where they have a zone.

    >>> iso_texts(pa.array([0], pa.timestamp("s", "Europe/Helsinki"))).to_pylist()
    ['1970-01-01T00:00:00Z']
    """
    utc = array.cast(pa.timestamp(array.type.unit, "UTC")) if array.type.tz else array
    return pc.replace_substring(utc.cast(pa.large_string()), " ", "T", max_replacements=1)


def seconds(array: pa.Array) -> pa.Array:
    """Return durations in seconds, as decimals, which keep every digit.

    >>> seconds(pa.array([2**53 + 1], pa.duration("ns"))).to_pylist()
    [Decimal('9007199.254740993')]
    """
    ticks = pc.fill_null(array.view(pa.int64()), 0).to_numpy()
    wide = np.stack([ticks, ticks >> 63], axis=1)  # the sign fills the upper half
    buffers = [array.is_valid().buffers()[1], pa.py_buffer(np.ascontiguousarray(wide))]
    return pa.Array.from_buffers(pa.decimal128(19, DIGITS[array.type.unit]), len(array), buffers)


def base64_texts(array: pa.Array) -> pa.Array:
    """Return bytes as base64 text."""
    encoded = [None if v is None else base64.b64encode(v).decode("ascii") for v in array.to_pylist()]
    return pa.array(encoded, type=pa.large_string())


def joined(*pieces: pa.Array | str, null: str | None = None) -> pa.Array:
    """Return texts put together row by row; nulls are written as `null`, or make the whole row null.

    >>> joined("<", pa.array(["a", None], pa.large_string()), ">").to_pylist()
    ['<a>', None]
    """
    texts = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in (*pieces, "")]
    if null is None:
        return pc.binary_join_element_wise(*texts)
    return pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=null)


def _texts(array: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(array, NEEDS_ESCAPING)
    if not pc.any(special).as_py():
        return _quoted(array)
    texts = [None if v is None else json.dumps(v, ensure_ascii=False) for v in array.to_pylist()]
    return pa.array(texts, type=pa.large_string())


def _floats(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string()).cast(pa.large_string())
    if not pc.all(pc.is_finite(array)).as_py() and len(array) > array.null_count:
        texts = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.large_string()), texts)
        texts = pc.replace_substring(texts, "inf", INFINITY)
    # A float without a fraction keeps its point, so that a reader that guesses types sees a float.
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(whole, joined(texts, ".0"), texts)


def _quoted(texts: pa.Array) -> pa.Array:
    return joined('"', texts.cast(pa.large_string()), '"')


# -- values that hold values -------------------------------------------------------------------------------------------


def _objects(array: pa.Array) -> pa.Array:
    """Return structs: their keys are the same in every row."""
    pieces: list[pa.Array | str] = []
    for field, values in zip(array.type, array.flatten(), strict=True):
        pieces += [(", " if pieces else "{") + json.dumps(field.name, ensure_ascii=False) + ": ", json_texts(values)]
    if not pieces:
        return _null_where(array, pa.array(["{}"] * len(array), pa.large_string()))
    return _null_where(array, joined(*pieces, "}", null="null"))


def _lists(array: pa.Array) -> pa.Array:
    items, bounds = items_of(array)
    return _null_where(array, joined("[", _run_together(json_texts(items), bounds), "]"))


def _maps(array: pa.Array) -> pa.Array:
    items, bounds = items_of(array)
    keys, values = items.flatten()
    names = json_texts(keys)
    if not is_text(keys.type):  # numbers, dates and the like are keys as text too
        names = _texts(pc.utf8_trim(names, characters='"'))
    pairs = joined(names, ": ", json_texts(values), null="null")
    return _null_where(array, joined("{", _run_together(pairs, bounds), "}"))


def _run_together(texts: pa.Array, bounds: NDArray[np.int64]) -> pa.Array:
    """Return the texts between each two bounds as one, with commas between them: bytes as they lie, seen otherwise."""
    last = np.zeros(len(texts), dtype=np.bool_)
    last[bounds[1:][np.diff(bounds) > 0] - 1] = True
    apart = joined(texts, pc.if_else(pa.array(last), "", ", ").cast(pa.large_string()), null="null")
    offsets = np.frombuffer(apart.buffers()[1], dtype=np.int64, count=len(apart) + 1, offset=8 * apart.offset)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets[bounds])), apart.buffers()[2]]
    return pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)


def _null_where(array: pa.Array, texts: pa.Array) -> pa.Array:
    if not array.null_count:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.large_string()))
