"""Rows that a format cannot hold: found by the column, and only in columns whose types leave it in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.records.alike import without_arrays
from headrace.records.columns import from_column, to_column
from headrace.records.lists import is_any_list, items_of
from headrace.records.types import has_objects, once_a_type, types_within
from headrace.sinks.json_value import NoJsonError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

DAYS_FROM, DAYS_TO = -719_162, 2_932_896
"""The first and the last day of the years 1 to 9999, which ISO 8601 has and Python's own dates, counted from 1970."""
TICKS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
MAX_SECS = (2**63 - 1) // 1_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """A property of values that a format cannot hold, and the types that may have it."""

    concerns: Callable[[pa.DataType], bool]
    flags: Callable[[pa.Array], Flags]
    """For every row, whether the value has it; nulls have not."""
    why: str


def text_misfits(batch: pa.RecordBatch) -> dict[int, str]:
    """Return the rows that JSON text cannot hold, each with the reason; for CSV files too.

    >>> text_misfits(pa.record_batch({"at": pa.array([0, 2**40], pa.timestamp("s"))}))
    {1: "column 'at' holds a time outside the years 1 to 9999, which text cannot tell; mend it in a map step, or write \
Parquet"}
    """
    return _misfits(batch, _text_trouble, (_FAR, _KEY_TWICE, _HALF_DAY))


def parquet_misfits(batch: pa.RecordBatch) -> dict[int, str]:
    """Return the rows that columns of Parquet cannot hold, each with the reason.

    >>> parquet_misfits(pa.record_batch({"x": to_column([1, 2**70])}))
    {1: "column 'x' holds an integer beyond 64 bits; turn it into text or a float in a map step"}
    """
    return _misfits(batch, _column_trouble, (_FAR_SECOND, _HALF_DAY))


def _misfits(batch: pa.RecordBatch, trouble: Callable[[Any], str | None], doubts: tuple[Doubt, ...]) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if has_objects(column.type):
            for row, value in enumerate(from_column(column)):
                if why := trouble(value):
                    found.setdefault(row, f"column {name!r} holds {why}")
        for doubt in _concerning(column.type, doubts):
            for row in np.flatnonzero(_flags(column, doubt)).tolist():
                found.setdefault(row, f"column {name!r} holds {doubt.why}")
    return found


@once_a_type
def _concerning(type_: pa.DataType, doubts: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    types = list(types_within(type_))
    return tuple(doubt for doubt in doubts if any(map(doubt.concerns, types)))


def _text_trouble(value: Any) -> str | None:
    try:
        text_of(value)
    except NoJsonError as error:
        return str(error)
    return None


def _column_trouble(value: Any) -> str | None:
    if why := _text_trouble(value):
        return why
    if not has_objects(to_column([without_arrays(value)]).type):
        return None
    if isinstance(value, int):
        return "an integer beyond 64 bits; turn it into text or a float in a map step"
    return f"a value ({type(value).__name__}) that has no type of its own in columns; turn it into text in a map step"


def _flags(array: pa.Array, doubt: Doubt) -> Flags:
    """Return the rows that have the property, at any depth."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _flags(array.storage, doubt)
    if pa.types.is_dictionary(type_):
        return _flags(array.dictionary_decode(), doubt)
    if pa.types.is_run_end_encoded(type_):
        import pyarrow.compute as pc  # slow to import, and seldom needed

        return _flags(pc.run_end_decode(array), doubt)
    flags = doubt.flags(array) if doubt.concerns(type_) else np.zeros(len(array), dtype=np.bool_)
    if pa.types.is_struct(type_):
        for child in array.flatten():
            flags = flags | _flags(child, doubt)
    elif is_any_list(type_):
        items, bounds = items_of(array)
        counts = np.concatenate([[0], np.cumsum(_flags(items, doubt))])
        flags = flags | (counts[bounds[1:]] > counts[bounds[:-1]])
    return flags


# -- doubts ------------------------------------------------------------------------------------------------------------


def _ticks(array: pa.Array) -> NDArray[np.int64]:
    width = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    return np.asarray(array.view(width).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _may_be_far(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or (pa.types.is_timestamp(type_) and type_.unit != "ns"))


def _is_far(array: pa.Array) -> Flags:
    a_day = 1 if pa.types.is_date32(array.type) else TICKS_A_DAY[getattr(array.type, "unit", "ms")]
    ticks = _ticks(array)
    return (ticks < DAYS_FROM * a_day) | (ticks >= (DAYS_TO + 1) * a_day)


def _has_key_twice(array: pa.Array) -> Flags:
    items, bounds = items_of(array)
    keys = items.field(0).dictionary_encode().indices.to_numpy()
    rows = np.repeat(np.arange(len(array)), np.diff(bounds))
    pairs = rows * (int(keys.max(initial=0)) + 1) + keys
    distinct = np.bincount(np.unique(pairs) // (int(keys.max(initial=0)) + 1), minlength=len(array))
    return np.asarray(distinct < np.diff(bounds))


_FAR = Doubt(
    _may_be_far,
    _is_far,
    "a time outside the years 1 to 9999, which text cannot tell; mend it in a map step, or write Parquet",
)
_KEY_TWICE = Doubt(
    pa.types.is_map,
    _has_key_twice,
    "a map in which a key comes twice, which JSON cannot tell; mend it in a map step, or write Parquet",
)
_FAR_SECOND = Doubt(
    lambda type_: bool(pa.types.is_timestamp(type_) and type_.unit == "s"),
    lambda array: np.abs(_ticks(array)) > MAX_SECS,
    "a time in seconds so far away that Parquet, which counts milliseconds, cannot tell it; mend it in a map step",
)
_HALF_DAY = Doubt(
    pa.types.is_date64,
    lambda array: _ticks(array) % TICKS_A_DAY["ms"] != 0,
    "a date with a time of day, which files cannot tell; make it a timestamp in a map step",
)
