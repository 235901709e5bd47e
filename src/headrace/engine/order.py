"""Putting blocks back into the order of the input, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.records.position import END, START, Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.engine.commit.done import Place
    from headrace.records.block import Block, Unit


class Reorder:
    """A pure state machine: blocks in any order in, blocks in the order of the input out.

    `held_bytes` counts what waits for its turn. What lies before `frontier` is not expected.
    """

    def __init__(self, units: Sequence[Unit], *, frontier: Place | None = None) -> None:
        self._units = units
        self._at = 0
        self._place: Position = START
        if frontier is not None:
            self._at, self._place = units.index(frontier[0]), frontier[1]
            self._step()
        self._waiting: dict[tuple[Unit, Position], Block] = {}
        self.held_bytes = 0

    @property
    def needed_split(self) -> int | None:
        """The split whose rows are waited for; None at the end."""
        return self._units[self._at].split if not self.complete else None

    @property
    def complete(self) -> bool:
        """Whether every unit has come to its end."""
        return self._at >= len(self._units)

    def add(self, block: Block) -> Iterator[Block]:
        """Take a block; yield those whose turn it is now."""
        self._waiting[block.unit, block.start] = block
        self.held_bytes += block.nbytes
        while not self.complete:
            following = self._waiting.pop((self._units[self._at], self._place), None)
            if following is None:
                return
            self.held_bytes -= following.nbytes
            self._place = following.end
            self._step()
            yield following

    def clear(self) -> None:
        """Let go what waits: no more is wanted."""
        self._waiting.clear()
        self.held_bytes = 0

    def _step(self) -> None:
        if self._place == END:
            self._at, self._place = self._at + 1, START
