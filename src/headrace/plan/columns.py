"""Column functions: from record batch to record batch, row for row. Frozen data, so that plans can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import PlanError, UnknownColumnError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Select:
    """Keep these columns, in this order."""

    names: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that have to be there."""
        return self.names

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply to a batch; a column that no row had yet is null."""
        return _present(batch, self.names, "select")

    def after(self, names: Sequence[str], step: str) -> list[str]:
        """Return the columns behind the step, given those before it."""
        _check(self.names, names, step)
        return list(self.names)


@dataclass(frozen=True, slots=True)
class Drop:
    """Leave these columns out."""

    names: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that have to be there."""
        return self.names

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply to a batch."""
        return batch.select([name for name in batch.schema.names if name not in self.names])

    def after(self, names: Sequence[str], step: str) -> list[str]:
        """Return the columns behind the step, given those before it."""
        _check(self.names, names, step)
        return [name for name in names if name not in self.names]


@dataclass(frozen=True, slots=True)
class Rename:
    """Give columns new names: pairs of old and new."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that have to be there."""
        return tuple(old for old, _ in self.pairs)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply to a batch."""
        new = dict(self.pairs)
        return batch.rename_columns([new.get(name, name) for name in batch.schema.names])

    def after(self, names: Sequence[str], step: str) -> list[str]:
        """Return the columns behind the step, given those before it."""
        new = dict(self.pairs)
        _check(new, names, step)
        renamed = [new.get(name, name) for name in names]
        twice = {name for name in renamed if renamed.count(name) > 1}
        if twice:
            raise PlanError(f"step {step!r} would give two columns the name {sorted(twice)[0]!r}")
        return renamed


def _check(wanted: Iterable[str], names: Sequence[str], step: str) -> None:
    for name in wanted:
        if name not in names:
            raise UnknownColumnError(name, names, step=step)


def _present(batch: pa.RecordBatch, names: Sequence[str], step: str) -> pa.RecordBatch:
    import pyarrow as pa

    missing = [name for name in names if name not in batch.schema.names]
    if not missing:
        return batch.select(list(names))
    if not batch.num_rows or not batch.schema.names:
        columns = [batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=list(names))
    raise UnknownColumnError(missing[0], batch.schema.names, step=step)
