"""What the tests of sources share: read a source as the engine does, checking what every source promises."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from headrace.records.failure import RowFailure
from headrace.sources.source import Source


@dataclass
class Outcome:
    rows: list[dict[str, Any]]
    failures: list[RowFailure]
    splits: int

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def read(source: Source, *, columns: list[str] | None = None) -> Outcome:
    """Read all splits in a copy that was pickled, as workers do."""
    source.schema()
    splits = list(source.splits())
    copy = pickle.loads(pickle.dumps(source))
    outcome = Outcome([], [], len(splits))
    for number, split in enumerate(splits):
        assert split.number == number
        split = pickle.loads(pickle.dumps(split))
        at = 0
        for block in copy.read(split, columns=columns):
            assert block.start == (at,), "covers follow one another without a gap"
            at = block.end[0]
            assert block.num_rows + len(block.failures) == block.end[0] - block.start[0]
            ordinals = [*block.ordinal_array().tolist(), *(f.ordinal for f in block.failures)]
            assert sorted(ordinals) == list(range(block.start[0], block.end[0]))
            assert all(f.stage == source.name for f in block.failures)
            outcome.rows += block.batch.to_pylist()
            outcome.failures += block.failures
    return outcome


def read_from(source: Source, split: Any, start: int) -> list[tuple[int, dict[str, Any]]]:
    """Read a split from an ordinal on; rows with their ordinals."""
    found: list[tuple[int, dict[str, Any]]] = []
    for block in source.read(split, columns=None, start=start):
        found += zip(block.ordinal_array().tolist(), block.batch.to_pylist(), strict=True)
    return [(ordinal, row) for ordinal, row in found if ordinal >= start]
