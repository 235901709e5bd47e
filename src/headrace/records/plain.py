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
    """Return text as an Arrow array.

    >>> array_of_text(["a", None]).to_pylist()
    ['a', None]
    """
    builder = pa.lib.StringBuilder()
    builder.append_values(list(values))
    return builder.finish()


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
