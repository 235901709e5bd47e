"""Plain numbers and text between numpy, Python and Arrow, without a copy where there is one type for both.

pyarrow's own conversions import pandas wherever it is installed, which costs a small job more time than the job itself;
these do not, and fall back to them for everything that is not plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def array_of_numbers(values: NDArray[Any]) -> pa.Array:
    """Return a one-dimensional numpy array as an Arrow array that shares its memory where it can.

    >>> array_of_numbers(np.array([1, 2])).type
    DataType(int64)
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
    if values.dtype.kind not in "iuf" or values.dtype.itemsize > 8:
        return pa.array(values)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, data])


def array_of_text(values: Sequence[str | None]) -> pa.Array:
    """Return text as an Arrow array; of a type for large text where there are more than 2 GB.

    >>> array_of_text(["a", None]).to_pylist()
    ['a', None]
    """
    there = None if None not in values else [value is not None for value in values]
    texts = ["" if value is None else value for value in values] if there else values
    whole = "".join(texts)  # type: ignore[arg-type]
    parts: Sequence[Any] = texts if whole.isascii() else [text.encode() for text in texts]  # type: ignore[union-attr]
    data = whole.encode() if parts is texts else b"".join(parts)
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    small = len(data) < 2**31
    places = pa.py_buffer(offsets.astype(np.int32) if small else offsets)
    buffers = [None if there is None else _validity(there), places, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string() if small else pa.large_string(), len(parts), buffers)


def array_of_plain(values: Sequence[Any]) -> pa.Array | None:
    """Return values of one plain kind, nulls among them, as `pyarrow.array` would; None for all others.

    >>> array_of_plain([1.5, None]).type, array_of_plain(["a"]).type, array_of_plain([b"a"])
    (DataType(double), DataType(string), None)
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    kind = kinds.pop()
    if kinds or kind not in _DTYPES:
        return None
    try:
        if kind is str:
            return array_of_text(values)
        if None not in values:
            return array_of_numbers(np.array(values, dtype=_DTYPES[kind]))
        numbers = array_of_numbers(np.array([kind() if v is None else v for v in values], dtype=_DTYPES[kind]))
    except (OverflowError, UnicodeEncodeError):  # more than 64 bits; half a character
        return None
    buffers = [_validity([value is not None for value in values]), numbers.buffers()[1]]
    return pa.Array.from_buffers(numbers.type, len(values), buffers)


_DTYPES: dict[type, Any] = {str: None, int: np.int64, float: np.float64, bool: np.bool_}


def _validity(there: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(there, dtype=np.bool_), bitorder="little"))


def numbers_of(array: pa.Array) -> NDArray[Any] | None:
    """Return an Arrow array of numbers without nulls as a read-only view; None where it is anything else.

    >>> numbers_of(pa.array([1.5, 2.5]).slice(1))
    array([2.5])
    """
    type_ = array.type
    if array.null_count or not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        return None
    kind = "f" if pa.types.is_floating(type_) else "i" if pa.types.is_signed_integer(type_) else "u"
    dtype = np.dtype(f"{kind}{type_.byte_width}")
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, dtype=dtype)
    view = np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)
    view.flags.writeable = False  # Arrow's memory may lie in an array of the user's
    return view


def flags_of(array: pa.Array) -> NDArray[np.bool_]:
    """Return an Arrow array of booleans as a numpy array of its own; null is False.

    >>> flags_of(pa.array([True, None, False]))
    array([ True, False, False])
    """

    def bits(buffer: pa.Buffer) -> NDArray[np.bool_]:
        packed = np.frombuffer(buffer, dtype=np.uint8)
        first, last = array.offset, array.offset + len(array)
        return np.unpackbits(packed, count=last, bitorder="little")[first:].view(np.bool_)

    validity, values = array.buffers()
    if len(array) == 0:
        return np.empty(0, dtype=np.bool_)
    return bits(values) if validity is None else bits(values) & bits(validity)
