"""What earlier runs of the job have finished, so that it is not done again."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.records.block import Unit
from headrace.records.position import END, START, Position, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.records.block import Block

Place: TypeAlias = tuple[Unit, Position]
"""A place in the whole input; places compare in the order of the input."""
Range: TypeAlias = tuple[Position, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Everything before `frontier`, and the ranges beyond it that lie in segments. A snapshot, plain data.

    >>> done = Done(frontier=(Unit(1), (10,)))
    >>> done.has_unit(Unit(0)), done.has_unit(Unit(1)), done.first_missing(Unit(1))
    (True, False, (10,))
    """

    frontier: Place | None = None
    ranges: dict[Unit, tuple[Range, ...]] = field(default_factory=dict)
    """Ascending, apart from one another, between whole rows, by unit."""
    everything: bool = False
    """The job had been finished."""
    rows: int = 0
    """Output rows that need not be made again."""

    @property
    def nothing(self) -> bool:
        """Whether nothing has been finished."""
        return self.frontier is None and not self.ranges and not self.everything

    def has_unit(self, unit: Unit) -> bool:
        """Say whether a unit needs no work at all."""
        return self.everything or self.ranges_of(unit) == ((START, END),)

    def closing(self, units: Iterable[Unit]) -> Done:
        """Return what is done when units that cannot be gone on with count as done."""
        return replace(self, ranges={**self.ranges, **dict.fromkeys(units, ((START, END),))})

    def first_missing(self, unit: Unit) -> Position:
        """Return the place in the unit up to which all is done (END for a finished unit)."""
        ranges = ((START, END),) if self.everything else self.ranges_of(unit)
        return ranges[0][1] if ranges and ranges[0][0] <= START else START

    def missing(self, block: Block) -> list[Block]:
        """Return the pieces of a block (between whole rows) that still have to be worked on."""
        if self.everything:
            return []
        ranges = self.ranges_of(block.unit)
        if not ranges:
            return [block]
        gaps: list[Range] = []
        at = block.start
        for low, high in ranges[max(0, bisect_right(ranges, (block.start, END)) - 1) :]:
            if low >= block.end:
                break
            if low > at:
                gaps.append((at, low))
            at = max(at, high)
        if at < block.end:
            gaps.append((at, block.end))
        pieces = [block.clip(low, high) for low, high in gaps]
        return [piece for piece in pieces if piece is not None]

    def ranges_of(self, unit: Unit) -> tuple[Range, ...]:
        """Return the finished ranges of a unit, ascending and joined."""
        if self.frontier is None or unit > self.frontier[0]:
            return self.ranges.get(unit, ())
        if unit < self.frontier[0]:
            return ((START, END),)
        return joined([(START, self.frontier[1]), *self.ranges.get(unit, ())])


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Join ranges that touch, shrink the results to whole rows, and drop what is empty.

    >>> joined([((5,), (7, 2)), ((0,), (3,)), ((7, 2), (9, 1))])
    (((0,), (3,)), ((5,), (9,)))
    """
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    shrunk = [(low if is_whole(low) else (low[0] + 1,), high[:1]) for low, high in merged]
    return tuple((low, high) for low, high in shrunk if low < high)
