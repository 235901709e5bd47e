"""Infinite numbers: in columns, where they may be what became of numbers too large for their type, and in JSON."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.records.lists import is_any_list
from headrace.records.plain import numbers_of

INFINITY = "1e999"
"""JSON has no word for infinity, but a number larger than any float is one to those who read floats."""


def has_infinities(column: pa.Array | pa.ChunkedArray) -> bool:
    """Say whether there are infinite numbers in a column, or in the lists and structs that it holds.

    >>> has_infinities(pa.array([[1.0], [2.0, float("inf")]])), has_infinities(pa.array([1, 2]))
    (True, False)
    """
    if isinstance(column, pa.ChunkedArray):
        return any(map(has_infinities, column.chunks))
    if pa.types.is_struct(column.type):
        return any(map(has_infinities, column.flatten()))
    if pa.types.is_map(column.type):
        return has_infinities(column.items)
    if is_any_list(column.type):
        return has_infinities(column.flatten())
    if not pa.types.is_floating(column.type):
        return False
    numbers = numbers_of(column)
    return bool(np.isinf(column.to_numpy(zero_copy_only=False) if numbers is None else numbers).any())
