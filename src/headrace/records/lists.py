"""Lists of every kind Arrow has, maps among them, as their items one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_any_list(type_: pa.DataType) -> bool:
    """Say whether `items_of` takes a type."""
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
        or pa.types.is_map(type_)
    )


def items_of(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of all lists and where each list ends among them, with 0 in front; null lists are empty.

    A map's items are structs of key and value.

    >>> items, bounds = items_of(pa.array([[1, 2], None, [3]]))
    >>> items.to_pylist(), bounds
    ([1, 2, 3], array([0, 2, 2, 3]))
    """
    import pyarrow.compute as pc

    if pa.types.is_map(array.type):
        pair = pa.struct([array.type.key_field, array.type.item_field])
        array = array.cast(pa.large_list(pair))
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
