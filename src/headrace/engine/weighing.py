"""When rows that a step gathers are enough for a block: a few of them are weighed now and then."""

from __future__ import annotations

TARGET_BLOCK_BYTES = 16 * 2**20
"""Size that blocks are cut back to where a step makes more than it was given."""

FIRST_ROWS = 16
MOST_ROWS = 1024
"""Rows between two looks, so that rows that suddenly are large are noticed."""
WEIGHED_ROWS = 4


class Weigher:
    """Weighs the last of the rows gathered for a block.

    >>> weigher = Weigher(target_bytes=1000)
    >>> weigher.due(15), weigher.due(16)
    (False, True)
    >>> weigher.full(16, row_bytes=10), weigher.due(63), weigher.due(64), weigher.full(64, row_bytes=50)
    (False, False, True, True)
    """

    def __init__(self, target_bytes: int = TARGET_BLOCK_BYTES) -> None:
        self._target_bytes = target_bytes
        self._look_at = FIRST_ROWS

    def due(self, rows: int) -> bool:
        """Say whether it is time to weigh WEIGHED_ROWS of so many rows."""
        return rows >= self._look_at

    def full(self, rows: int, *, row_bytes: float) -> bool:
        """Say whether so many rows are enough for a block; if not, the next look is later."""
        if rows * row_bytes >= self._target_bytes:
            self._look_at = FIRST_ROWS
            return True
        self._look_at = min(4 * rows, rows + MOST_ROWS)
        return False
