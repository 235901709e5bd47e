"""Where a stage's blocks go: one channel a consumer, each fed what its sinks still lack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.records.block import Block, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.channel import Channel
    from headrace.engine.commit.done import Done


class Needed:
    """What of the input some consumer still needs, given what earlier runs left in the sinks behind it.

    `views` names the sinks, each with the lanes that unions on the way add; None means that everything is needed (the
    caller collects the rows, or a limit must count them).
    """

    def __init__(self, views: Sequence[tuple[Done, tuple[int, ...]]] | None) -> None:
        self._views = views

    def unit(self, unit: Unit) -> bool:
        """Say whether any of a unit is needed."""
        if self._views is None:
            return True
        return any(not done.has_unit(Unit(unit.split, unit.lane + lane)) for done, lane in self._views)

    def pieces(self, block: Block) -> list[Block]:
        """Return the parts of a block that are needed."""
        if self._views is None:
            return [block]
        if len(self._views) == 1:
            done, lane = self._views[0]
            found = done.missing(replace(block, unit=Unit(block.unit.split, block.unit.lane + lane)))
            return [replace(piece, unit=block.unit) for piece in found]
        # Several sinks that lack different parts: each takes what it lacks at its own door.
        for done, lane in self._views:
            if done.missing(replace(block, unit=Unit(block.unit.split, block.unit.lane + lane))):
                return [block]
        return []


@dataclass(frozen=True, slots=True)
class Edge:
    """One consumer of a stage."""

    channel: Channel
    lane: tuple[int, ...]
    needed: Needed


class Outlet:
    """All consumers of a stage."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = tuple(edges)

    def put(self, block: Block) -> None:
        """Hand a block to every consumer that needs it, waiting for room."""
        for edge in self.edges:
            for piece in edge.needed.pieces(block):
                unit = Unit(piece.unit.split, piece.unit.lane + edge.lane) if edge.lane else piece.unit
                edge.channel.put(piece if unit is piece.unit else replace(piece, unit=unit))

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
