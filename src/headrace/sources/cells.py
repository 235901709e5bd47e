"""Cells of text to typed columns, exactly: what a column of text may be called, and which cells do not fit a type.

Codes with leading zeros, integers beyond 64 bits, dates and "NA" are text. This is the slow and careful way; files
whose cells all fit are read by Arrow's own parser and never come here beyond their sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.infinities import has_infinities
from headrace.records.plain import array_of_numbers, array_of_text, flags_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TRUE_VALUES = ("true", "True", "TRUE")
FALSE_VALUES = ("false", "False", "FALSE")

_INT = r"^[ \t]*-?(0|[1-9][0-9]*)[ \t]*$"
_FLOAT = r"^[ \t]*-?((0|[1-9][0-9]*)\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_ANY_INT = r"^[ \t]*-?[0-9]+[ \t]*$"
_ANY_FLOAT = r"^[ \t]*-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_WORD_FLOAT = r"^[ \t]*[+-]?(?i:nan|inf|infinity)[ \t]*$"
_SURE_FLOAT = r"\.|[eE][+-]"
LEADING_ZERO = r"^[ \t]*[+-]?0[0-9xX]"


@dataclass(frozen=True, slots=True)
class Converted:
    """A column, and which of its cells did not fit (they are null in it)."""

    column: pa.Array
    misfits: NDArray[np.int64]


def infer_cells(cells: pa.Array, null_values: Sequence[str] = ("",)) -> pa.DataType:
    """Return the type that all cells of a text column fit: null, int64, double, bool or string.

    >>> [str(infer_cells(pa.array(c))) for c in (["1", ""], ["1", "2.5"], ["007"], ["NA", "1"], [""], ["true"])]
    ['int64', 'double', 'string', 'string', 'null', 'bool']
    """
    return infer_portions(cells, [len(cells)], null_values)[0]


def infer_portions(cells: pa.Array, lengths: Sequence[int], null_values: Sequence[str] = ("",)) -> list[pa.DataType]:
    """Return the type of each portion of a text column, as `infer_cells` does, looking at all of them at once.

    >>> [str(type_) for type_ in infer_portions(pa.array(["1", "2.5", "x"]), [1, 2])]
    ['int64', 'string']
    """
    filled = flags_of(pc.invert(_is_null(cells, null_values)))
    ints = flags_of(pc.match_substring_regex(cells, _INT))
    beyond = np.zeros(len(cells), dtype=np.bool_)
    beyond[_beyond_64_bits(cells, array_of_numbers(ints & filled))] = True
    edges = np.concatenate([[0], np.cumsum(lengths)])

    def count(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.diff(np.concatenate([[0], np.cumsum(flags & filled)])[edges])
        return counts

    rows, whole, large = count(filled), count(ints), count(beyond)
    types = [pa.null() if n == 0 else pa.int64() for n in rows]
    if (whole < rows).any():
        words = array_of_text(TRUE_VALUES + FALSE_VALUES).cast(cells.type)
        truths = count(flags_of(pc.is_in(cells, value_set=words)))
        numbers = count(
            flags_of(pc.or_(pc.match_substring_regex(cells, _FLOAT), pc.match_substring_regex(cells, _WORD_FLOAT)))
        )
        # "12E4" alone may be a product code
        sure = count(flags_of(pc.match_substring_regex(cells, _SURE_FLOAT)))
        for i in np.flatnonzero(whole < rows).tolist():
            if truths[i] == rows[i]:
                types[i] = pa.bool_()
            else:
                types[i] = pa.float64() if numbers[i] == rows[i] and sure[i] else pa.string()
    for i in np.flatnonzero(large).tolist():
        types[i] = pa.string()  # an integer beyond 64 bits must not be rounded
    return types


def convert_cells(
    cells: pa.Array, to: pa.DataType, null_values: Sequence[str] = ("",), *, lenient: bool = False
) -> Converted:
    """Convert a column of bytes to a type; integers become floats where a cell needs it, null any type.

    `lenient` takes codes for numbers and 0 and 1 for booleans, because the user said what they are.

    >>> done = convert_cells(pa.array([b"1", b"x", b""]), pa.int64())
    >>> done.column.to_pylist(), done.misfits.tolist()
    ([1, None, None], [1])
    """
    text, broken = _decoded(cells)
    if pa.types.is_null(to):
        to = infer_cells(text, null_values)
        if pa.types.is_null(to):
            return Converted(pa.nulls(len(text)), broken)
    if pa.types.is_string(to) or pa.types.is_large_string(to):
        return Converted(text.cast(to), broken)
    if pa.types.is_binary(to) or pa.types.is_large_binary(to):
        return Converted(cells.cast(to), np.empty(0, dtype=np.int64))
    nulls = _is_null(text, null_values)
    if pa.types.is_integer(to):
        return _convert_integers(text, nulls, to, _ANY_INT if lenient else _INT)
    if pa.types.is_floating(to):
        number = _ANY_FLOAT if lenient else _FLOAT
        fits = pc.or_(pc.match_substring_regex(text, number), pc.match_substring_regex(text, _WORD_FLOAT))
        return _without_overflow(_convert_fitting(text, nulls, fits, to), text, number)
    if pa.types.is_boolean(to):
        known = TRUE_VALUES + FALSE_VALUES + (("0", "1") if lenient else ())
        fits = pc.is_in(text, value_set=pa.array(known))
        return _convert_fitting(text, nulls, fits, to)
    return _convert_one_by_one(text, nulls, to)


def decoded(cells: pa.Array) -> pa.Array:
    """Return a column of bytes as text; what is not UTF-8 is shown with backslashes."""
    return _decoded(cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells)[0]


def _convert_integers(text: pa.Array, nulls: pa.Array, to: pa.DataType, pattern: str) -> Converted:
    ints = pc.match_substring_regex(text, pattern)
    floats = pc.and_(pc.match_substring_regex(text, _FLOAT), pc.invert(ints))
    fits = ints.to_numpy(zero_copy_only=False).copy()
    wide = pa.uint64() if pa.types.is_uint64(to) else pa.int64()
    fits[_beyond_64_bits(text, ints, unsigned=pa.types.is_uint64(to))] = False
    if to.equals(pa.int64()) and pc.any(pc.and_(floats, pc.match_substring_regex(text, _SURE_FLOAT))).as_py():
        return _convert_fitting(text, nulls, pc.or_(pa.array(fits), floats), pa.float64())
    try:
        done = _convert_fitting(text, nulls, pa.array(fits), wide)
        return Converted(done.column.cast(to), done.misfits)
    except pa.ArrowInvalid:  # a narrower type that dtypes= asked for
        return _convert_one_by_one(text, nulls, to)


def _convert_fitting(text: pa.Array, nulls: pa.Array, fits: pa.Array, to: pa.DataType) -> Converted:
    wanted = pc.if_else(nulls, pa.scalar(None, pa.string()), text)
    misfits = _where(pc.and_(pc.invert(fits), pc.invert(nulls)))
    if len(misfits):
        wanted = pc.if_else(fits, wanted, pa.scalar(None, pa.string()))
    trimmed = pc.utf8_trim(wanted, characters=" \t")
    if pa.types.is_boolean(to):
        return Converted(pc.utf8_lower(trimmed).cast(to), misfits)
    return Converted(trimmed.cast(to), misfits)


def _without_overflow(done: Converted, text: pa.Array, number: str) -> Converted:
    """Take out numbers that are infinite only because the type is too narrow for them."""
    if not has_infinities(done.column):
        return done
    beyond = pc.and_(pc.is_inf(done.column), pc.match_substring_regex(text, number))
    column = pc.if_else(pc.fill_null(beyond, False), pa.scalar(None, done.column.type), done.column)
    return Converted(column, np.union1d(done.misfits, _where(beyond)))


def _convert_one_by_one(text: pa.Array, nulls: pa.Array, to: pa.DataType) -> Converted:
    wanted = pc.if_else(nulls, pa.scalar(None, pa.string()), text)
    try:
        return Converted(_cast(wanted, to), np.empty(0, dtype=np.int64))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        pass
    values: list[pa.Array] = []
    misfits: list[int] = []
    for row in range(len(wanted)):
        try:
            values.append(_cast(wanted.slice(row, 1), to))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            values.append(pa.nulls(1, to))
            misfits.append(row)
    return Converted(pa.concat_arrays(values), np.array(misfits, dtype=np.int64))


def _cast(text: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast text, also to the types of time that Arrow makes of no text; durations are seconds."""
    if pa.types.is_time(to):
        return pc.binary_join_element_wise("1970-01-01 ", text, "").cast(pa.timestamp(to.unit)).cast(to)
    if pa.types.is_duration(to):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[to.unit]
        exact = text.cast(pa.decimal128(19, digits))  # as many digits as 64 bits, and a few values more
        ticks = [None if value is None else int(value.scaleb(digits)) for value in exact.to_pylist()]
        return pa.array(ticks, pa.int64()).view(to)
    return text.cast(to)


def _decoded(cells: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    if pa.types.is_string(cells.type):
        return cells, np.empty(0, dtype=np.int64)
    try:
        return cells.cast(pa.string()), np.empty(0, dtype=np.int64)
    except pa.ArrowInvalid:
        pass
    values: list[str] = []
    broken: list[int] = []
    for row, cell in enumerate(cells.to_pylist()):
        try:
            values.append(cell.decode())
        except UnicodeDecodeError:
            values.append(cell.decode(errors="backslashreplace"))
            broken.append(row)
    return pa.array(values, pa.string()), np.array(broken, dtype=np.int64)


def _is_null(text: pa.Array, null_values: Sequence[str]) -> pa.Array:
    return pc.is_in(text, value_set=array_of_text(list(null_values)).cast(text.type))


def _beyond_64_bits(text: pa.Array, among: pa.Array | None = None, *, unsigned: bool = False) -> NDArray[np.int64]:
    """Return the rows whose digits do not fit 64 bits."""
    long = pc.greater_equal(pc.binary_length(text), array_of_numbers(np.array([19], dtype=np.int32))[0])
    if among is not None:
        long = pc.and_(long, among)
    rows = _where(long)
    low, high = (0, 2**64) if unsigned else (-(2**63), 2**63)
    beyond = [r for r in rows.tolist() if not low <= int(text[r].as_py()) < high]
    return np.array(beyond, dtype=np.int64)


def _where(flags: pa.Array) -> NDArray[np.int64]:
    return np.asarray(numbers_of(pc.indices_nonzero(flags)), dtype=np.int64)
