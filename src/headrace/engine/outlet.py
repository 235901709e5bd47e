"""Where a stage's blocks go: one channel a consumer, each fed what its sinks still lack."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.records.block import Block, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.engine.channel import Channel
    from headrace.engine.commit.done import Done
    from headrace.records.position import Position


SMALL_BYTES = 2**16
SETTLING_SECS = 0.05
SETTLING_SHARE = 0.01
"""A stage waits until its small blocks are safe in their sinks, for so long in all and then this share of its time."""
SETTLED_SOON_SECS = 0.02


class Needed:
    """What of the input some consumer still needs, given what earlier runs left in the sinks behind it.

    `views` names the sinks, each with the lanes that unions on the way add; None means that everything is needed (the
    caller collects the rows, or a limit must count them).
    """

    def __init__(self, views: Sequence[tuple[Done, tuple[int, ...]]] | None) -> None:
        self._views = views
        self._whole = views is None or any(done.nothing for done, _ in views)
        """Whether some sink has had nothing yet."""

    def unit(self, unit: Unit) -> bool:
        """Say whether any of a unit is needed."""
        if self._whole:
            return True
        return any(not done.has_unit(Unit(unit.split, unit.lane + lane)) for done, lane in self._views or ())

    def pieces(self, block: Block) -> list[Block]:
        """Return the parts of a block that are needed."""
        if self._whole:
            return [block]
        # Several sinks may lack different parts: what any of them lacks is made, and each takes its own at its door.
        gaps: list[tuple[Position, Position]] = []
        for low, high in sorted((piece.start, piece.end) for piece in self._missing(block)):
            if gaps and low <= gaps[-1][1]:
                gaps[-1] = gaps[-1][0], max(high, gaps[-1][1])
            else:
                gaps.append((low, high))
        return [piece for low, high in gaps if (piece := block.clip(low, high)) is not None]

    def _missing(self, block: Block) -> Iterator[Block]:
        for done, lane in self._views or ():
            yield from done.missing(replace(block, unit=Unit(block.unit.split, block.unit.lane + lane)))


@dataclass(frozen=True, slots=True)
class Edge:
    """One consumer of a stage."""

    channel: Channel
    lane: tuple[int, ...]
    needed: Needed
    into_sink: bool = False


class Outlet:
    """All consumers of a stage."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = tuple(edges)
        self._sinks = tuple(edge.channel for edge in edges if edge.into_sink)
        self._began = time.perf_counter()
        self._settled_secs = 0.0
        self._counting = threading.Lock()
        self.copied = 0
        """Rows handed on beyond those that were put, since several consumers got them."""

    def put(self, block: Block) -> None:
        """Hand a block to every consumer that needs it, waiting for room.

        Small blocks are seen safe into their sinks as long as that costs next to nothing: a kill then costs a slow
        stage the work at hand and no more.
        """
        handed_on = 0
        for edge in self.edges:
            for piece in edge.needed.pieces(block):
                handed_on += piece.num_rows
                unit = Unit(piece.unit.split, piece.unit.lane + edge.lane) if edge.lane else piece.unit
                edge.channel.put(piece if unit is piece.unit else replace(piece, unit=unit))
        if handed_on > block.num_rows:
            with self._counting:
                self.copied += handed_on - block.num_rows
        if block.nbytes <= SMALL_BYTES and self.settles:
            self._settle()

    @property
    def settles(self) -> bool:
        """Whether waiting for sinks is still cheap, so that what is finished had better be put at once."""
        if not self._sinks:
            return False
        return self._settled_secs < SETTLING_SECS + SETTLING_SHARE * (time.perf_counter() - self._began)

    def _settle(self) -> None:
        began = time.perf_counter()
        for channel in self._sinks:
            channel.settle(SETTLED_SOON_SECS)
        self._settled_secs += time.perf_counter() - began

    def needs(self, unit: Unit) -> bool:
        """Say whether any consumer needs any of a unit."""
        return any(edge.needed.unit(unit) for edge in self.edges)

    @property
    def unwanted(self) -> bool:
        """Whether every consumer has had enough (a limit was reached)."""
        return all(edge.channel.discarding for edge in self.edges)

    def close(self) -> None:
        """Say that this stage is done."""
        for edge in self.edges:
            edge.channel.close()
