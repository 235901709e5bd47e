"""Keys: a digest of each row of a batch, worked out column by column.

A column becomes a matrix of bytes with a row for each value: the bytes of a number, the digest of what has no fixed
length (text, lists), side by side for structs, and a last byte that tells null from the rest. A row's key is the digest
of its bytes in all columns. Equal values have equal bytes, in whatever batches they lie and whatever lies under nulls.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.records.types import is_bytes, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Bytes: TypeAlias = "NDArray[np.uint8]"
KEY_BYTES = 16


def row_bytes(columns: Sequence[pa.Array], rows: int) -> Bytes:
    """Return the bytes of each row of columns of equal length, as a matrix.

    >>> row_bytes([pa.array([1, None], pa.int16())], 2).tolist()
    [[1, 0, 1], [0, 0, 0]]
    """
    return np.hstack([np.empty((rows, 0), dtype=np.uint8), *(_column_bytes(column) for column in columns)])


def keys_of(matrix: Bytes, *, salt: bytes) -> list[bytes]:
    """Return the digest of each row of a matrix; rows that mean different things have to differ in their salt.

    >>> a, b, c = keys_of(row_bytes([pa.array(["x", "y", "x"])], 3), salt=b"text")
    >>> a == c, a == b, len(a)
    (True, False, 16)
    """
    data, width = np.ascontiguousarray(matrix).reshape(-1).data, matrix.shape[1]
    salted = hashlib.blake2b(salt, digest_size=16).digest()
    digest = hashlib.blake2b
    return [
        digest(data[at : at + width], digest_size=KEY_BYTES, salt=salted).digest()
        for at in (row * width for row in range(len(matrix)))
    ]


def layout(names: Sequence[str], columns: Sequence[pa.Array]) -> str:
    """Say what the bytes of columns stand for, to be part of the salt; text of any encoding is text.

    >>> layout(["t"], [pa.array(["a"], pa.large_string())]) == layout(["t"], [pa.array(["a"]).dictionary_encode()])
    True
    """
    return repr([(name, _kind(column.type)) for name, column in zip(names, columns, strict=True)])


def _kind(type_: pa.DataType) -> str:
    if isinstance(type_, pa.BaseExtensionType):
        return f"{type_.extension_name} {_kind(type_.storage_type)}"
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    if is_text(type_) or is_bytes(type_):
        return "text" if is_text(type_) else "bytes"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"[{_kind(type_.value_type)}]"
    if pa.types.is_struct(type_):
        return repr([(field.name, _kind(field.type)) for field in type_])
    return str(type_)


def _column_bytes(column: pa.Array) -> Bytes:
    """Return a column's bytes; the last of each row is 0 for null."""
    if isinstance(column, pa.ExtensionArray):
        return _column_bytes(column.storage)
    if pa.types.is_dictionary(column.type):
        return _by_index(column)
    valid = _valid(column)
    bytes_ = _values(column, valid)
    return np.hstack([np.where(valid[:, np.newaxis], bytes_, np.uint8(0)), valid.view(np.uint8)[:, np.newaxis]])


def _values(column: pa.Array, valid: NDArray[np.bool_]) -> Bytes:
    """Return the bytes of each value; those of nulls do not matter."""
    type_ = column.type
    if pa.types.is_null(type_):
        return np.empty((len(column), 0), dtype=np.uint8)
    if pa.types.is_boolean(type_):
        return _bits(column.buffers()[1], column)[:, np.newaxis].view(np.uint8)
    if is_text(type_) or is_bytes(type_):
        if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
            column = column.cast(pa.large_binary() if is_bytes(type_) else pa.large_string())
        data = column.buffers()[2]
        return _digests(b"" if data is None else data, _offsets(column), valid)
    if pa.types.is_struct(type_):
        return row_bytes(column.flatten(), len(column))
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        items = _column_bytes(column.values.slice(column.offset * size, len(column) * size))
        return items.reshape(len(column), size * items.shape[1])
    if is_list(type_) or pa.types.is_map(type_):
        offsets = _offsets(column)
        first, last = int(offsets[0]), int(offsets[-1])
        children = [column.values] if is_list(type_) else [column.keys, column.items]
        items = row_bytes([child.slice(first, last - first) for child in children], last - first)
        return _digests(np.ascontiguousarray(items).reshape(-1), (offsets - first) * items.shape[1], valid)
    if type_.num_fields == 0 and type_.num_buffers == 2 and type_.bit_width % 8 == 0:
        return _fixed(column)
    shown = (repr(value).encode("utf8", "surrogatepass") for value in column.to_pylist())  # unions and other rare kinds
    return _matrix([hashlib.blake2b(value, digest_size=KEY_BYTES).digest() for value in shown])


def _by_index(column: pa.DictionaryArray) -> Bytes:
    """Return the bytes of values that a dictionary holds once each."""
    values = _column_bytes(column.dictionary)
    nothing = np.zeros((1, values.shape[1]), dtype=np.uint8)
    indices = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    found: Bytes = np.vstack([values, nothing])[indices]
    return found


def _fixed(column: pa.Array) -> Bytes:
    """Return the bytes of values of one size."""
    width, data = column.type.bit_width // 8, column.buffers()[1]
    if data is None or width == 0:
        return np.zeros((len(column), width), dtype=np.uint8)
    count = len(column) * width
    return np.frombuffer(data, dtype=np.uint8, count=count, offset=column.offset * width).reshape(len(column), width)


def _digests(data: Any, offsets: NDArray[np.int64], valid: NDArray[np.bool_]) -> Bytes:
    """Return the digest of each range of the data; what lies under nulls is not looked at."""
    view, digest = memoryview(data), hashlib.blake2b
    return _matrix(
        [
            digest(view[a:b] if there else b"", digest_size=KEY_BYTES).digest()
            for (a, b), there in zip(pairwise(offsets.tolist()), valid.tolist(), strict=True)
        ]
    )


def _matrix(digests: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), KEY_BYTES)


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    large = pa.types.is_large_list(column.type) or str(column.type).startswith("large_")
    dtype = np.dtype(np.int64 if large else np.int32)
    data = column.buffers()[1]
    if data is None or data.size == 0:  # of a column without rows
        return np.zeros(len(column) + 1, dtype=np.int64)
    found = np.frombuffer(data, dtype=dtype, count=len(column) + 1, offset=column.offset * dtype.itemsize)
    return found.astype(np.int64)


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_union(column.type):  # which have no nulls of their own
        return np.ones(len(column), dtype=np.bool_)
    validity = column.buffers()[0]
    return np.ones(len(column), dtype=np.bool_) if validity is None else _bits(validity, column)


def _bits(data: pa.Buffer, column: pa.Array) -> NDArray[np.bool_]:
    first, last = column.offset, column.offset + len(column)
    packed = np.frombuffer(data, dtype=np.uint8)[first // 8 : -(-last // 8)]
    return np.unpackbits(packed, bitorder="little")[first % 8 : first % 8 + len(column)].view(np.bool_)
