"""Positions: places between the rows of one split, in an order that survives fan-out.

A position is a tuple of integers, compared as tuples are. `(7,)` is the place before the row with ordinal 7;
`(7, 2)` lies inside that row's children, after `(7, 1)` and before `(8,)`. A block covers `[start, end)`, and the
blocks that a block is cut into cover it without a gap, so that "is this range complete?" is answered by joining
ends to starts, however many fan-outs lie between.
"""

from __future__ import annotations

from typing import TypeAlias

Position: TypeAlias = tuple[int, ...]


def between(start: Position, end: Position, index: int) -> Position:
    """Return the `index`-th (1, 2, …) of a growing series of positions strictly between `start` and `end`.

    >>> between((3,), (5,), 1), between((3,), (5,), 2)
    ((3, 1), (3, 2))
    >>> between((3,), (3, 1), 1)
    (3, 0, 1)
    """
    assert start < end, (start, end)
    assert index >= 1, index
    zeros: Position = ()
    if end[: len(start)] == start:
        # `end` lies inside `start`'s own children: go one level below the first non-zero step towards it.
        tail = end[len(start) :]
        depth = next(i for i, step in enumerate(tail) if step > 0)
        zeros = (0,) * (depth + 1)
    return (*start, *zeros, index)


def is_whole(position: Position) -> bool:
    """Say whether the position lies between two input rows, not inside one row's children.

    >>> is_whole((4,)), is_whole((4, 1))
    (True, False)
    """
    return len(position) == 1


START: Position = (0,)
"""Before a unit's first row."""

END: Position = (2**62,)
"""After a unit's last row. The last block of a unit ends here: a unit is complete when its cover reaches END."""
