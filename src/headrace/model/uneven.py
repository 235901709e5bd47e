"""Why the rows of a batch do not make one array of numbers, and what can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def why_uneven(rows: Sequence[Any]) -> str:
    """Say what keeps rows from being one array of numbers, for a message.

    >>> why_uneven([[1, 2], [3]])
    'rows of different lengths; pass collate=hr.PadSequences(), which pads them'
    >>> why_uneven([np.zeros((2, 3, 3)), np.zeros((4, 5, 3))])
    'pictures of different sizes; pass collate=hr.FitPictures(), which resizes, pads or groups them'
    >>> why_uneven([["a", "b"], ["c"]])
    'text, and a model takes numbers; make numbers of it in a step before, or with preprocess='
    >>> why_uneven([None, [1]])
    'null; fill it in a step before, or filter such rows out'
    """
    others = sorted(set().union(*map(_no_numbers, rows)))
    if others == ["null"]:
        return "null; fill it in a step before, or filter such rows out"
    if others:
        return (
            f"{' and '.join(others)}, and a model takes numbers; make numbers of it in a step before, or with "
            "preprocess="
        )
    shapes = {_shape(row) for row in rows}
    inner = {shape[1:] for shape in shapes if shape}
    if len(inner) == 1 and () not in shapes:
        return "rows of different lengths; pass collate=hr.PadSequences(), which pads them"
    if {len(shape) for shape in shapes} in ({2}, {3}) and len({shape[2:] for shape in shapes}) == 1:
        return "pictures of different sizes; pass collate=hr.FitPictures(), which resizes, pads or groups them"
    listed = ", ".join(map(str, sorted(shapes)[:3]))
    return f"rows of different shapes ({listed}); give them one shape in a step before, or pass a function as collate="


def _no_numbers(value: Any) -> set[str]:
    """Name what stands in a row, at any depth, in the place of numbers."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return set()
    if isinstance(value, (list, tuple, np.ndarray)):
        return set().union(*map(_no_numbers, value))
    if value is None:
        return {"null"}
    if isinstance(value, str):
        return {"text"}
    return set() if isinstance(value, (int, float, complex, np.number, np.bool_)) else {type(value).__name__}


def _shape(row: Any) -> tuple[int, ...]:
    """Return the shape of a row; of one that is ragged itself its length."""
    try:
        return np.shape(row)
    except ValueError:
        return (len(row),)
