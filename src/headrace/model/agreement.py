"""On how many rows models agree, from their answers side by side."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.records.columns import to_numpy
from headrace.records.types import is_number, is_text

if TYPE_CHECKING:
    from collections.abc import Mapping

EQUAL, COMPARED = "equal", "compared"

CLOSE = 1e-6
"""Numbers that differ by less than this, relative to their size, are the same answer."""


def agreement(answers: Mapping[str, pa.Array]) -> Counter[tuple[str, str, str]]:
    """Count for each pair of models the rows that both have answered, and those of them with the same answer.

    Of answers with a field `label` that counts alone. Lists and arrays are not compared.

    >>> agreement({"old": pa.array(["a", "b", None]), "new": pa.array(["a", "c", "c"])})
    Counter({('compared', 'old', 'new'): 2, ('equal', 'old', 'new'): 1})
    """
    import pyarrow.compute as pc  # slow to import: not before models are compared

    found: Counter[tuple[str, str, str]] = Counter()
    labels = {name: labels_of(column) for name, column in answers.items()}
    for one, other in combinations(labels, 2):
        both = pc.and_(pc.is_valid(labels[one]), pc.is_valid(labels[other]))
        same = _same(labels[one].filter(both), labels[other].filter(both))
        if same is not None:
            found[COMPARED, one, other] += len(same)
            found[EQUAL, one, other] += int(np.count_nonzero(same))
    return found


def labels_of(column: pa.Array) -> pa.Array:
    """Return what each answer says: the field `label` where there is one, else the answer itself."""
    import pyarrow.compute as pc  # slow to import: not before models are compared

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_struct(column.type) and column.type.get_field_index("label") >= 0:
        return labels_of(pc.struct_field(column, "label"))
    return column


def _same(one: pa.Array, other: pa.Array) -> np.ndarray | None:
    """Say row by row whether answers are the same; None where they are of kinds that cannot be compared."""
    import pyarrow.compute as pc  # slow to import: not before models are compared

    if not len(one):
        return np.empty(0, dtype=bool)
    if is_text(one.type) and is_text(other.type):
        return to_numpy(pc.equal(one.cast(pa.large_string()), other.cast(pa.large_string())))
    if pa.types.is_boolean(one.type) and pa.types.is_boolean(other.type):
        return to_numpy(pc.equal(one, other))
    if is_number(one.type) and is_number(other.type):
        if pa.types.is_integer(one.type) and one.type == other.type:
            return to_numpy(pc.equal(one, other))
        a, b = (to_numpy(column).astype(np.float64) for column in (one, other))
        return np.isclose(a, b, rtol=CLOSE, atol=0.0, equal_nan=True)
    return None
