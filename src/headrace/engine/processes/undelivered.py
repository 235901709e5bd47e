"""What of a block is still to come when the worker that had it is gone: pure, and exact about what came already."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.records.position import is_whole

if TYPE_CHECKING:
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure
    from headrace.records.position import Position


class Undelivered:
    """A block whose pieces come one by one, and the part to work on again if they stop coming.

    What came since the last `settle()` is worked on again and passed over: the same functions give the same rows.
    """

    def __init__(self, start: Position) -> None:
        """Begin with a block that starts there; the block itself is kept elsewhere."""
        self._start = self._end = self._whole = start
        self._rows = self._again = 0
        """Rows that came since the last `settle()`, and how many of them a new worker has given once more."""
        self._failures: Counter[tuple[str, int, str]] = Counter()
        self._failures_again: Counter[tuple[str, int, str]] = Counter()

    def take(self, piece: Block) -> Block:
        """Return a worker's piece without what another has given before."""
        given = piece.num_rows
        repeated = min(given, max(0, self._rows - self._again))
        self._again += given
        self._rows = max(self._rows, self._again)
        fresh = tuple(failure for failure in piece.failures if self._is_fresh(failure))
        if repeated or len(fresh) < len(piece.failures):
            piece = replace(
                piece,
                batch=piece.batch.slice(repeated),
                ordinals=piece.ordinal_array()[repeated:],
                failures=fresh,
                errors=0 if repeated else piece.errors,
            )
        self._end = piece.end
        return piece

    @property
    def at_whole_row(self) -> bool:
        """Whether what came so far ends between two input rows."""
        return is_whole(self._end)

    def settle(self) -> None:
        """Say that what came so far need not be worked on again; it ends between two input rows."""
        assert self.at_whole_row
        self._whole = self._end
        self._rows = self._again = 0
        self._failures.clear()
        self._failures_again.clear()

    def rest_of(self, block: Block) -> Block:
        """Return what of the block has not been settled, for a new worker."""
        ordinals = block.ordinal_array()
        anew = self._whole == self._start
        done = 0 if anew else int(np.searchsorted(ordinals, self._whole[0]))
        self._again = 0
        self._failures_again.clear()
        return replace(
            block,
            batch=block.batch.slice(done),
            start=self._end,
            ordinals=ordinals[done:],
            failures=tuple(failure for failure in block.failures if anew or failure.ordinal >= self._whole[0]),
            errors=block.errors if self._end == self._start else 0,
        )

    def _is_fresh(self, failure: RowFailure) -> bool:
        key = (failure.stage, failure.ordinal, failure.row)
        self._failures_again[key] += 1
        if self._failures_again[key] <= self._failures[key]:
            return False
        self._failures[key] += 1
        return True
