"""JSON values to typed columns, exactly: the type that values call for, and which values do not fit a type."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.records.infinities import INFINITY
from headrace.records.lists import is_any_list
from headrace.records.types import TypeQuarrelError, is_bytes, is_text, types_within, unify_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

EXACT = Context(prec=100)


class WrittenFloat(float):
    """A number with a fraction that remembers how it was written, for types that keep every digit."""

    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_float_for(types: Iterable[pa.DataType]) -> Callable[[str], float]:
    """Return what to make of numbers with a fraction, for columns of these types."""
    inner = (t for type_ in types for t in types_within(type_))
    return WrittenFloat if any(pa.types.is_decimal(t) or pa.types.is_duration(t) for t in inner) else _finite


def _finite(text: str) -> float:
    """Return a float, which remembers how it was written where 64 bits do not hold it."""
    number = float(text)
    return number if math.isfinite(number) else WrittenFloat(text)


def loads_object(line: bytes, parse_float: Callable[[str], float] = float) -> dict[str, Any]:
    """Return the object that a line holds.

    >>> loads_object(b'{"id": 1}')
    {'id': 1}

    Raises:
        ValueError: it holds none, or text that is none.
    """
    row = json.loads(line, parse_float=parse_float)
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, found {type(row).__name__}")
    if rb"\ud" in line.lower():
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("text with half a character (a lone surrogate)") from None
    return row


class MisfitError(Exception):
    """A value does not fit the type of its column."""


class BigIntegerError(Exception):
    """An integer that 64 bits do not hold."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the values of a column become in one block."""

    type: pa.DataType
    as_text: bool = False
    """Whether values that are no text are written as JSON."""
    exact: bool = False
    """Whether it is a column of integers, floats in this block alone: integers beyond 64 bits do not fit even so."""

    def fit(self, value: Any) -> Any:
        """Return the value as Arrow wants it; raises MisfitError."""
        if self.exact and isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise MisfitError(value)
        return fitted(value, self.type, as_text=self.as_text)


def type_of(value: Any) -> pa.DataType:
    """Return the type that a JSON value calls for; text is always text, also where it looks like a date.

    >>> type_of({"a": [1, None], "b": "2024-01-01"})
    StructType(struct<a: list<item: int64>, b: string>)

    Raises:
        TypeQuarrelError: a list holds values without a common type.
        BigIntegerError: an integer is beyond 64 bits.
    """
    if value is None:
        return pa.null()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise BigIntegerError(str(value))
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, list):
        return pa.list_(unified(value))
    return pa.struct([pa.field(k, type_of(v)) for k, v in value.items()])


def unified(values: Iterable[Any], start: pa.DataType | None = None, column: str = "") -> pa.DataType:
    """Return the type that holds all values (and `start`).

    >>> unified([None, 1, 2.5])
    DataType(double)

    Raises:
        TypeQuarrelError: there is none.
        BigIntegerError: an integer is beyond 64 bits.
    """
    result = start if start is not None else pa.null()
    for type_ in dict.fromkeys(type_of(v) for v in values):
        result = unify_types(result, type_, column)
    return result


def inferred(values: list[Any], column: str) -> tuple[pa.DataType, bool]:
    """Return the type of a column and whether integers beyond 64 bits make it text.

    Raises:
        TypeQuarrelError: the values have no common type.
    """
    try:
        return unified(values, column=column), False
    except BigIntegerError:
        if all(v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in values):
            return pa.string(), True
        raise TypeQuarrelError(column, pa.int64(), pa.string()) from None


def widened(values: list[Any], to: pa.DataType) -> pa.DataType:
    """Return `to`, widened where values allow it: null to any type, integers to floats, new keys in structs."""
    try:
        return unified(values, to)
    except (TypeQuarrelError, BigIntegerError):
        pass
    for value in values:
        try:
            to = unify_types(to, type_of(value))
        except (TypeQuarrelError, BigIntegerError):
            continue
    return to


def fitted(value: Any, to: pa.DataType, *, as_text: bool = False) -> Any:
    """Return the value as Arrow wants it for a type.

    >>> fitted(1, pa.float64()), fitted(17, pa.string(), as_text=True)
    (1.0, '17')

    Raises:
        MisfitError: it does not fit.
    """
    if value is None:
        return None
    if is_text(to):
        return _text(value, as_text)
    if pa.types.is_dictionary(to):
        return fitted(value, to.value_type, as_text=as_text)
    kind = type(value)
    if kind is bool and pa.types.is_boolean(to):
        return value
    if kind in (int, float, WrittenFloat):
        return _fitted_number(value, to)
    if kind is list and is_any_list(to) and not pa.types.is_map(to):
        return [fitted(v, to.value_type, as_text=as_text) for v in value]
    if kind is dict and pa.types.is_struct(to):
        return {f.name: fitted(value.get(f.name), f.type, as_text=as_text) for f in to}
    if kind is dict and pa.types.is_map(to):
        return [(_key(k, to.key_type), fitted(v, to.item_type, as_text=as_text)) for k, v in value.items()]
    if kind is dict and list(value) == ["base64"] and (is_bytes(to) or pa.types.is_fixed_size_binary(to)):
        return _bytes(value["base64"], to)
    if kind is str and not pa.types.is_nested(to):  # dates and the like, asked for by dtypes=
        return _checked(value, to)
    raise MisfitError(value)


def _fitted_number(value: float, to: pa.DataType) -> Any:
    if pa.types.is_floating(to):
        return _fitted_float(value, to)
    if pa.types.is_integer(to) and isinstance(value, int):
        return _checked(value, to)
    if pa.types.is_decimal(to) or pa.types.is_duration(to):
        exact = Decimal(value.text if isinstance(value, WrittenFloat) else value)
        if pa.types.is_decimal(to):
            return _checked(exact, to)
        ticks = exact.scaleb(DIGITS[to.unit], EXACT)
        if ticks == int(ticks):
            return _checked(int(ticks), to)
    raise MisfitError(value)


def _fitted_float(value: float, to: pa.DataType) -> float:
    """Return a number as a float; one that the type is too narrow for does not become infinite."""
    try:
        number = float(value)
    except OverflowError as error:
        raise MisfitError(value) from error
    if math.isinf(number):
        # What is written as Infinity is none, nor is what our own files have for it.
        overflown = isinstance(value, WrittenFloat) and value.text.removeprefix("-") != INFINITY
    else:
        overflown = to.bit_width < 64 and math.isinf(pa.scalar(number, to).as_py())
    if overflown:
        raise MisfitError(value)
    return number


def _key(text: str, to: pa.DataType) -> Any:
    """Return a map's key, which is text whatever its type."""
    try:
        return text if is_text(to) else fitted(json.loads(text), to)
    except (ValueError, MisfitError):
        return fitted(text, to)


def _bytes(text: Any, to: pa.DataType) -> bytes:
    try:
        return bytes(_checked(base64.b64decode(text, validate=True), to))
    except (ValueError, TypeError) as error:
        raise MisfitError(text) from error


def _text(value: Any, as_text: bool) -> str:
    if isinstance(value, str):
        return value
    if as_text:
        return json.dumps(value, ensure_ascii=False)
    raise MisfitError(value)


def _checked(value: Any, to: pa.DataType) -> Any:
    """Return the value if Arrow takes it for the type, as Arrow takes it."""
    try:
        if isinstance(value, str) and pa.types.is_time(to):
            return _time(value, to)
        scalar = pa.scalar(value).cast(to) if isinstance(value, str) else pa.scalar(value, to)
        return scalar.value if pa.types.is_timestamp(to) or pa.types.is_duration(to) else scalar.as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        raise MisfitError(value) from error


def _time(text: str, to: pa.DataType) -> int:
    """Return a time of day as what Arrow counts; it has no cast for them."""
    moment = pa.scalar(f"1970-01-01T{text}").cast(pa.timestamp(to.unit))
    return int(moment.value)
