"""Private columns: they carry what one step made to another, and are dropped behind it; no user sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_PREFIX = "__headrace_"
INPUT = f"{_PREFIX}input"
"""What `preprocess` returned."""
WEIGHT = f"{_PREFIX}weight"
"""What `length_fn` or `weight_fn` returned."""
PREPARED = f"{_PREFIX}prepared"
"""What the model takes, as its handler's preparer made it: a struct of named inputs; null where a row failed."""

KEY = f"{_PREFIX}key"
"""What the `key` function of a `KeyedModelHandler` returned."""


def answer_column(number: int) -> str:
    """Name the column for the answers of one of several models that all rows are put to."""
    return f"{_PREFIX}answer_{number}"


def is_private(name: str) -> bool:
    """Say whether a column is one of these."""
    return name.startswith(_PREFIX)


def public(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without private columns.

    >>> import pyarrow as pa
    >>> public(pa.record_batch({"id": [1], WEIGHT: [0.5]})).schema.names
    ['id']
    """
    names = batch.schema.names
    return batch.select([name for name in names if not is_private(name)]) if any(map(is_private, names)) else batch


def public_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without private columns."""
    return {name: value for name, value in row.items() if not is_private(name)}
