"""The failed rows that a retry runs again: which they are, and where their answers belong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.engine.commit.failed import FailedRow
from headrace.records.plain import array_of_numbers
from headrace.records.position import END, START

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from headrace.engine.commit.done import Range
    from headrace.records.block import Block, Unit
    from headrace.records.failure import RowFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedRow:
    """An input row that a retry runs again."""

    split: int
    ordinal: int
    place: int
    """Rows of the output, as it was before any retry, that stand before its answer."""
    attempt: int = 1
    """Attempts so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Rows of a part that follow one another and come from one retried row."""

    row: int
    """The first of them in its part."""
    rows: int
    split: int
    ordinal: int
    place: int


class Retrying:
    """The rows of one retry, by where they come from.

    >>> retrying = Retrying([RetriedRow(split=2, ordinal=7, place=40)])
    >>> retrying.splits, retrying.ordinals(2).tolist()
    ({2}, [7])
    """

    def __init__(self, rows: Iterable[RetriedRow]) -> None:
        self._rows = {(row.split, row.ordinal): row for row in rows}
        by_split: dict[int, list[int]] = {}
        for split, ordinal in sorted(self._rows):
            by_split.setdefault(split, []).append(ordinal)
        self._ordinals = {split: np.array(found, dtype=np.int64) for split, found in by_split.items()}

    def __len__(self) -> int:
        return len(self._rows)

    @classmethod
    def union(cls, several: Iterable[Retrying]) -> Retrying:
        """Return the rows that any of several outputs lacks."""
        return cls(row for one in several for row in one._rows.values())

    @property
    def splits(self) -> set[int]:
        """The splits that have to be read."""
        return set(self._ordinals)

    def ordinals(self, split: int) -> NDArray[np.int64]:
        """Return the numbers of the rows in a split, ascending."""
        return self._ordinals.get(split, np.array([], dtype=np.int64))

    def finished(self, units: Sequence[Unit]) -> dict[Unit, tuple[Range, ...]]:
        """Return the units in which nothing has to be done, as ranges that are done."""
        return {unit: ((START, END),) for unit in units if unit.split not in self._ordinals}

    def select(self, block: Block) -> Block:
        """Return the block with those of its rows and failures that are to be run again; it covers what it covered."""
        wanted = self.ordinals(block.unit.split)
        ordinals = block.ordinal_array()
        kept = np.flatnonzero(np.isin(ordinals, wanted))
        failures = tuple(f for f in block.failures if (block.unit.split, f.ordinal) in self._rows)
        if len(kept) == len(ordinals):
            return replace(block, failures=failures)
        return replace(
            block, batch=block.batch.take(array_of_numbers(kept)), ordinals=ordinals[kept], failures=failures
        )

    def counted(self, block: Block) -> list[RowFailure]:
        """Return the block's failures with the attempts of earlier runs counted."""
        split = block.unit.split
        return [replace(f, attempt=f.attempt + self._rows[split, f.ordinal].attempt) for f in block.failures]

    def failed(self, failures: Iterable[RowFailure], block: Block) -> list[FailedRow]:
        """Return the journal's entries of rows that have failed again."""
        split = block.unit.split
        return [replace(FailedRow.of(f, block, before=0), place=self._rows[split, f.ordinal].place) for f in failures]

    def answered(self, block: Block, *, before: int) -> list[Answered]:
        """Say which retried row each of the block's rows comes from; `before` rows stand before them in their part."""
        split = block.unit.split
        ordinals, first, counts = np.unique(block.ordinal_array(), return_index=True, return_counts=True)
        return [
            Answered(row=before + at, rows=count, split=split, ordinal=ordinal, place=self._rows[split, ordinal].place)
            for ordinal, at, count in zip(ordinals.tolist(), first.tolist(), counts.tolist(), strict=True)
        ]
