"""Cutting a block front to back into pieces whose sizes are found on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.records.position import Position, between

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.records.block import Block
    from headrace.records.failure import RowFailure


class Cutter:
    """Hands out the places where a block's cover may be cut, in ascending order.

    Places inside one row's children begin with that row's ordinal, and are numbered rather than nested, so that they
    stay short however often a long row is cut.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._anchor: Position = block.start
        self._inside = 0
        self._last: Position = block.start

    def before_row(self, row: int) -> Position:
        """Return the place before a row (0 < row < num_rows), later than all places returned so far."""
        here: Position = (self._block.ordinal_of(row),)
        if here > self._last and self._block.ordinal_of(row - 1) != here[0]:
            self._anchor, self._inside, self._last = here, 0, here
            return here
        return self.within(row)

    def within(self, row: int) -> Position:
        """Return a place inside the children of a row."""
        here: Position = (self._block.ordinal_of(row),)
        if here > self._last:
            self._anchor, self._inside = here, 0
        self._inside += 1
        self._last = between(self._anchor, self._block.end, self._inside)
        return self._last


class Pieces:
    """Turns one block into output blocks one after another; the last one takes the rest of the cover."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._cutter = Cutter(block)
        self._start = block.start
        self._carried = block.failures

    def piece(
        self,
        batch: pa.RecordBatch,
        ordinals: NDArray[np.int64] | None,
        failures: Sequence[RowFailure],
        *,
        before: int | None,
        errors: int = 0,
    ) -> Block:
        """Make the next piece: it ends before row `before` of the input block, or at its end for None.

        `ordinals` are those of the batch's rows; None where they are one for one with the input rows covered and
        those are dense.
        """
        block = self._block
        end = block.end if before is None or before >= block.num_rows else self._cutter.before_row(before)
        return self._emit(batch, ordinals, failures, end, errors)

    def inside(
        self, batch: pa.RecordBatch, ordinals: NDArray[np.int64], failures: Sequence[RowFailure], *, row: int
    ) -> Block:
        """Make the next piece, which ends in the middle of the children of input row `row`."""
        return self._emit(batch, ordinals, failures, self._cutter.within(row), 0)

    def _emit(
        self,
        batch: pa.RecordBatch,
        ordinals: NDArray[np.int64] | None,
        failures: Sequence[RowFailure],
        end: Position,
        errors: int,
    ) -> Block:
        block, start = self._block, self._start
        last = end == block.end
        carried = tuple(f for f in self._carried if last or f.ordinal < end[0])
        self._carried = tuple(f for f in self._carried if not (last or f.ordinal < end[0]))
        if start == block.start:
            errors += block.errors
        self._start = end
        return replace(
            block,
            batch=batch,
            start=start,
            end=end,
            ordinals=ordinals,
            failures=(*carried, *failures),
            errors=errors,
        )
