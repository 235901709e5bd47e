"""Pieces: blocks on their way into a part, in memory, in a segment, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.records.giants import GIANT_BYTES
from headrace.records.position import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headrace.engine.commit.segments import Saved
    from headrace.records.block import Block, Unit
    from headrace.records.position import Position

OVERHEAD_BYTES = 2_000
"""What a block costs beyond its columns."""


@dataclass(slots=True, eq=False, kw_only=True)
class Piece:
    """One block, wherever its rows are. At least one of `block` and `saved` is there until it is in a part."""

    unit: Unit
    start: Position
    end: Position
    rows: int
    nbytes: int
    """Bytes of the columns."""
    errors: int
    failures: int
    schema: pa.Schema
    arrived: float
    block: Block | None
    saved: Saved | None = None
    altered: bool = False
    """The block is not as the segment has it, so that it stays in memory until it is in a part."""
    cost: int = 0
    """Bytes of memory while the block is held, failures and overhead included."""

    @property
    def is_giant(self) -> bool:
        """Whether it holds a row that is larger than most parts."""
        return self.rows > 0 and self.nbytes / self.rows > GIANT_BYTES

    @classmethod
    def of(cls, block: Block, *, now: float, saved: Saved | None = None) -> Piece:
        """Make the piece of a block."""
        texts = sum(len(f.row) + len(f.message) + len(f.traceback) for f in block.failures)
        nbytes = block.nbytes if block.num_rows else 0
        return cls(
            unit=block.unit,
            start=block.start,
            end=block.end,
            rows=block.num_rows,
            nbytes=nbytes,
            errors=block.errors,
            failures=len(block.failures),
            schema=block.batch.schema,
            arrived=now,
            block=block,
            saved=saved,
            cost=nbytes + texts + OVERHEAD_BYTES,
        )


def runs(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Sort pieces and group those that follow one another without a gap."""
    grouped: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p.unit, p.start)):
        if grouped and grouped[-1][-1].unit == piece.unit and grouped[-1][-1].end == piece.start:
            grouped[-1].append(piece)
        else:
            grouped.append([piece])
    return grouped


def whole(run: list[Piece]) -> list[Piece]:
    """Trim a run to pieces that begin and end between input rows: only those are of use to a later run."""
    first = next((i for i, piece in enumerate(run) if is_whole(piece.start)), len(run))
    last = next((i for i in range(len(run), first, -1) if is_whole(run[i - 1].end)), first)
    return run[first:last]
