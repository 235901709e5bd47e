"""Collation: rows of different lengths or sizes become arrays that a model takes.

A collation is a callable from a batch (an array, or a dict of arrays, as `inputs=` says) to the batch that the model
gets. It may have `lengths(batch)`, one number a row, by which like rows go together; and `groups(batch)`, the rows that
the model is asked about at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Side: TypeAlias = Literal["left", "right"]


def pad(
    arrays: Sequence[Any] | NDArray[Any],
    *,
    value: float = 0,
    side: Side = "right",
    multiple_of: int | None = None,
    length: int | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Pad n arrays of shapes (l, …) to one of shape (n, L, …); return it with a mask (n, L): 1 for what was there.

    L is the longest l, rounded up to `multiple_of`; or `length`, if that is given. Arrays may be tensors on the CPU or
    lists of numbers; their dtype is kept, where it can hold `value`.

    >>> padded, mask = pad([np.array([7, 8, 9]), np.array([5])], value=-1, side="left")
    >>> padded.tolist(), mask.tolist()
    ([[7, 8, 9], [-1, -1, 5]], [[1, 1, 1], [0, 0, 1]])

    Raises:
        ValueError: an array is longer than `length`, or null; or they differ in more than their lengths.
    """
    rows = arrays if isinstance(arrays, np.ndarray) and arrays.dtype != object and arrays.ndim > 1 else _rows(arrays)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    longest = int(lengths.max(initial=0))
    if length is not None and longest > length:
        raise ValueError(f"a row of length {longest} does not fit into length={length}; cut it before, or allow more")
    width = length if length is not None else -(-longest // (multiple_of or 1)) * (multiple_of or 1)
    places = np.arange(width) if side == "right" else np.arange(width)[::-1]
    there = places < lengths[:, np.newaxis]
    flat = rows.reshape(-1, *rows.shape[2:]) if isinstance(rows, np.ndarray) else np.concatenate(rows or [np.empty(0)])
    padded = np.full((len(rows), width, *flat.shape[1:]), value, dtype=_holding(value, flat.dtype))
    padded[there] = flat
    return padded, there.astype(np.int64)


def _holding(value: float, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, or a wider one that holds the value too."""
    with suppress(ValueError, OverflowError):
        if dtype.type(value) == value:
            return dtype
    return np.result_type(dtype, np.min_scalar_type(value))


def _rows(arrays: Sequence[Any] | NDArray[Any]) -> list[NDArray[Any]]:
    """Return rows as arrays that differ in their lengths only; what is empty takes the others' shape."""
    if any(row is None for row in arrays):
        raise ValueError("a row is null, and has no length; fill it, or filter it out")
    rows = [np.asarray(row) for row in arrays]
    if any(row.ndim == 0 for row in rows):
        raise ValueError("a row is a single number, and has no length; only sequences can be padded")
    filled = [row for row in rows if row.size]
    inner = {row.shape[1:] for row in filled}
    if len(inner) > 1:
        raise ValueError(f"rows differ in more than their lengths: by {' and '.join(map(str, sorted(inner)))}")
    empty = np.empty((0, *inner.pop()), dtype=np.result_type(*filled)) if filled else np.empty(0)
    return [row if row.size else empty for row in rows]
