"""Python values to one Arrow column, exactly: where Arrow would change a value, the values travel pickled instead."""

from __future__ import annotations

import datetime
import sys
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.records.alike import alike
from headrace.records.plain import array_of_plain
from headrace.records.tensors import object_array, tensor_array

if TYPE_CHECKING:
    from collections.abc import Iterable


def column_of(values: list[Any]) -> pa.Array:
    """Return Python values as a column; values without one type that keeps them all as they are stay Python objects.

    Keys that a dict lacks are null, tuples are lists, and times with several zones are in UTC.

    >>> column_of([1, None, 2.5]).type, column_of([{1, 2}]).type.extension_name
    (DataType(double), 'headrace.object')
    """
    if any(isinstance(v, np.ndarray) and v.ndim > 0 for v in values):
        return _of_arrays(values)
    values = [_scalar(v) if isinstance(v, (np.generic, np.ndarray)) else v for v in values]
    if "pandas" not in sys.modules and (plain := array_of_plain(values)) is not None:
        return plain  # pyarrow's own way is quicker, but for its import of pandas
    values = _without_pandas(values, set(map(type, values)))
    kinds = set(map(type, values))
    try:
        if _would_change(kinds, values):
            return object_array(values)
        column = _one_array(pa.array(values, type=_time_type(values, kinds)))
        return object_array(values) if _parts_would_change(values, column.type) else column
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # Arrow's own errors among them
        found = _numbers(values, kinds)
        return object_array(values) if found is None else found


def _scalar(value: Any) -> Any:
    """Return the Python value of a numpy scalar, where Python has one that is as exact."""
    if (value.dtype.kind in "biuf" and value.dtype.itemsize <= 8) or value.dtype.kind in "SU":
        return value.item()
    return value[()]


# -- what Arrow would change -------------------------------------------------------------------------------------------

_NEVER_TOGETHER = (
    {str, bytes},
    {str, bytearray},
    {float, bool},
    {int, bool},
)
"""Kinds of values that Arrow puts into one column by changing some of them."""
_NEVER = frozenset({set, frozenset})
"""Kinds that Arrow turns into lists, in an order that means nothing."""
_TIMES = (datetime.date, datetime.time, datetime.timedelta)
"""Kinds for which Arrow takes numbers beside them."""


def _would_change(kinds: set[type], values: Iterable[Any]) -> bool:
    """Say whether Arrow would change some of the values; `kinds` are their types."""
    if any(pair <= kinds for pair in _NEVER_TOGETHER) or kinds & _NEVER:
        return True
    times = {kind for kind in kinds if issubclass(kind, _TIMES)}
    moments = {kind for kind in times if issubclass(kind, datetime.datetime)}
    if (times and kinds - times - {type(None)}) or (moments and times - moments):
        return True
    if any(issubclass(kind, datetime.time) for kind in kinds):
        return any(isinstance(v, datetime.time) and v.tzinfo is not None for v in values)
    if any(issubclass(kind, datetime.datetime) for kind in kinds):
        return len({v.tzinfo is None for v in values if isinstance(v, datetime.datetime)}) > 1
    return False


def _parts_would_change(values: Iterable[Any], type_: pa.DataType) -> bool:
    """Say the same of what is inside the lists and dicts that became a column of this type."""
    parts: list[tuple[Iterable[Any], pa.DataType]]
    if pa.types.is_struct(type_):
        dicts = [v for v in values if v is not None]
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return True
        parts = [([v.get(field.name) for v in dicts], field.type) for field in type_]
    elif pa.types.is_list(type_):
        lists = [v for v in values if v is not None]
        if set(map(type, lists)) - {list, tuple}:  # arrays, which have one dtype
            return False
        parts = [(chain.from_iterable(lists), type_.value_type)]
    else:
        return False
    for part, inner in parts:
        if not inner.num_fields and not pa.types.is_temporal(inner):
            if _would_change(set(map(type, part)), ()):
                return True
        else:
            found = list(part)
            if _would_change(set(map(type, found)), found) or _parts_would_change(found, inner):
                return True
    return False


# -- what Arrow would not find -----------------------------------------------------------------------------------------


def _without_pandas(values: list[Any], kinds: set[type]) -> list[Any]:
    """Return the values with pandas' own nulls as nulls."""
    if not any(kind.__module__.partition(".")[0] == "pandas" for kind in kinds):
        return values
    import pandas as pd

    return [None if v is pd.NaT or v is pd.NA else v for v in values]


def _time_type(values: list[Any], kinds: set[type]) -> pa.DataType | None:
    """Return the type of times that have nanoseconds or several zones; None for all other values."""
    if any(issubclass(kind, datetime.datetime) for kind in kinds):
        moments = [v for v in values if v is not None]
        unit = "ns" if any(getattr(v, "nanosecond", 0) for v in moments) else "us"
        zones = {v.tzinfo for v in moments}
        if len(zones) > 1:
            return pa.timestamp(unit, "UTC")
        return pa.timestamp(unit, pa.array(moments[:1]).type.tz) if unit == "ns" else None
    if any(getattr(v, "nanoseconds", 0) for v in values if isinstance(v, datetime.timedelta)):
        return pa.duration("ns")
    return None


def _numbers(values: list[Any], kinds: set[type]) -> pa.Array | None:
    """Return integers beyond the signed ones, or numbers that floats hold exactly; None for all other values."""
    present = [v for v in values if v is not None]
    if kinds <= {int, type(None)} and all(0 <= v < 2**64 for v in present):
        return pa.array(values, type=pa.uint64())
    if kinds <= {int, float, type(None)} and float in kinds and all(_is_float(v) for v in present):
        return pa.array([None if v is None else float(v) for v in values], type=pa.float64())
    return None


def _is_float(number: Any) -> bool:
    try:
        return isinstance(number, float) or int(float(number)) == number
    except OverflowError:
        return False


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Undo that Arrow cuts columns of more than 2 GB of text or bytes."""
    if isinstance(values, pa.ChunkedArray):
        large = pa.large_string() if pa.types.is_string(values.type) else pa.large_binary()
        return values.cast(large).combine_chunks()
    return values


def _of_arrays(values: list[Any]) -> pa.Array:
    values = alike(values)
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    if not arrays:
        return column_of(values)
    if not all(v is None or isinstance(v, np.ndarray) for v in values):
        return object_array(values)
    ndims = {a.ndim for a in arrays}
    dtypes = {a.dtype for a in arrays}
    if len(ndims) > 1 or (ndims != {1} and len(dtypes) > 1 and any(d.kind != "f" for d in dtypes)):
        return object_array(values)  # as they are: a picture of 8 bits must not become one of 16 beside others
    if any(a.dtype.kind not in "biuf" or a.dtype.itemsize > 8 for a in arrays):
        return column_of([None if v is None else list(v) for v in values])
    if ndims == {1}:
        return _lists_of(values, np.result_type(*arrays))
    return tensor_array(values)


def _lists_of(values: list[Any], dtype: np.dtype[Any]) -> pa.Array:
    try:
        return pa.array(values, type=pa.list_(pa.from_numpy_dtype(dtype)))
    except pa.ArrowInvalid:  # integers that floats would round
        return object_array(values)
