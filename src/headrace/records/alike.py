"""Arrays and lists in one column: brought into one kind, so that a row's neighbours do not change its type."""

from __future__ import annotations

from typing import Any

import numpy as np


def alike(values: list[Any]) -> list[Any]:
    """Return arrays, lists and nulls with what is empty, or of another kind, like the others.

    Lists beside arrays make all of them lists. `[]` and `np.array([])`, which are what code makes of no boxes at all,
    become empty arrays of as many dimensions as the others have, or empty lists where no row has anything. Empty arrays
    take the dtype of the others. Values of any other kind come back as they are.

    >>> [a.shape for a in alike([np.ones((2, 4)), np.array([])])]
    [(2, 4), (0, 0)]
    >>> alike([np.array([1.5]), [2.5]])
    [[1.5], [2.5]]
    """
    if not all(value is None or isinstance(value, (list, np.ndarray)) for value in values):
        return values
    if any(isinstance(value, list) and value for value in values):
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    values = [np.array(value) if isinstance(value, list) else value for value in values]
    filled = [value for value in values if value is not None and value.size]
    if not filled:
        flat = all(value is None or value.ndim == 1 for value in values)
        return [None if value is None else [] for value in values] if flat else values
    if len(filled) == sum(value is not None for value in values):
        return values
    dtype, ndim = np.result_type(*filled), max(value.ndim for value in filled)
    return [value if value is None or value.size else _emptied(value, dtype, ndim) for value in values]


def without_arrays(value: Any) -> Any:
    """Return a value with the arrays and tensors inside its dicts, lists and tuples as lists and numbers.

    >>> without_arrays([{"box": np.zeros((1, 2)), "score": np.float32(0.5)}])
    [{'box': [[0.0, 0.0]], 'score': 0.5}]
    """
    if isinstance(value, dict):
        return {key: without_arrays(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [without_arrays(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value.detach().cpu().tolist() if hasattr(value, "detach") else value


def _emptied(value: Any, dtype: np.dtype[Any], ndim: int) -> Any:
    return value.astype(dtype) if value.ndim == ndim else np.empty((0,) * ndim, dtype=dtype)
