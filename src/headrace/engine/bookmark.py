"""Bookmarks: how far an iteration has come, and in which job, as a small value that can be kept as JSON."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.engine.commit.done import Done
from headrace.engine.commit.identity import differences
from headrace.engine.identity import identity_of
from headrace.errors import PlanError, ResumeError
from headrace.plan.nodes import MapBatches, RunInference, Shuffle, upstreams
from headrace.records.block import Unit
from headrace.records.position import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode
    from headrace.records.block import Block

VERSION = 1
ROW_BY_ROW = ("map", "flat_map", "filter", "add_column")
ANEW = "to begin at the first row leave state= out"


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two rows: in front of an input row, or behind the first `skip` rows that came of it."""

    unit: Unit
    row: int
    skip: int = 0

    def done(self) -> Done:
        """Return what lies before the input row, which the engine need not deliver again."""
        return Done(frontier=(self.unit, (self.row,)))


class Cursor:
    """Follows the rows that were handed out through the blocks that they came in. Pure."""

    def __init__(self, mark: Mark | None = None) -> None:
        self._mark = mark
        self._blocks: deque[Block] = deque()
        self._handed = 0
        """Rows handed out of these blocks."""
        self._to_skip = mark.skip if mark is not None else 0

    def feed(self, block: Block) -> Block:
        """Take the next block; return it without the rows that an earlier iteration has handed out."""
        mark = self._mark
        if self._to_skip and mark is not None and block.unit == mark.unit:
            seen = int(np.searchsorted(block.ordinal_array(), mark.row, side="right"))
            seen = min(seen, self._to_skip)
            self._to_skip -= seen
            block = replace(block, batch=block.batch.slice(seen), ordinals=block.ordinal_array()[seen:])
        self._settle()
        self._blocks.append(block)
        return block

    def advance(self, rows: int) -> None:
        """Note that so many more rows have been handed out."""
        self._handed += rows

    def mark(self) -> Mark | None:
        """Return the place behind the last row handed out; None before the first."""
        self._settle()
        return self._inside(self._blocks[0], self._handed) if self._handed else self._mark

    def _settle(self) -> None:
        """Let go the blocks that have been handed out whole."""
        while self._blocks and self._handed >= self._blocks[0].num_rows and (self._handed or self._mark):
            block = self._blocks.popleft()
            if is_whole(block.end):
                self._mark = Mark(block.unit, block.end[0])
            elif block.num_rows:
                self._mark = self._inside(block, block.num_rows)
            self._handed -= block.num_rows

    def _inside(self, block: Block, rows: int) -> Mark:
        """Return the place behind the first rows of a block."""
        ordinals = block.ordinal_array()[:rows]
        row = int(ordinals[-1])
        first = int(np.searchsorted(ordinals, row))
        before = self._mark
        continued = first == 0 and before is not None and (before.unit, before.row) == (block.unit, row)
        return Mark(block.unit, row, rows - first + (before.skip if continued and before is not None else 0))


def state_of(plan: Plan, mark: Mark | None) -> dict[str, Any]:
    """Write a place in a plan's rows as plain data.

    Raises:
        ResumeError: a later run could not be known to be of the same job, or would not find the same rows.
    """
    (output,) = plan.outputs
    identity = identity_of(plan, output)
    if identity.unknown:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in identity.unknown.items())
        raise ResumeError(f"there is no state to go on from ({reasons}); pass version= to that step")
    for node in plan.nodes:
        if isinstance(node, MapBatches) and node.step.fans_out and node.step.kind == "map_batches":
            before = _cut_by_time(node)
            if before is not None:
                raise ResumeError(
                    f"there is no state to go on from: step {plan.name_of(node)!r} gets other batches in every run, cut"
                    f" as {plan.name_of(before)!r} hands rows on; pass row_wise=True to it if it answers row by row, or"
                    f" put it in front of {plan.name_of(before)!r}"
                )
    place = None if mark is None else [[mark.unit.split, *mark.unit.lane], mark.row, mark.skip]
    return {"version": VERSION, "place": place, "job": identity.components, "input": _input_of(plan)}


def mark_from(state: Mapping[str, Any], plan: Plan) -> Mark | None:
    """Read the place out of a state, once it is known to be of this job.

    Raises:
        PlanError: it is no state.
        ResumeError: it is another job's.
    """
    try:
        if state["version"] != VERSION:
            raise PlanError(f"state= is of version {state['version']}, and this Headrace reads {VERSION}; {ANEW}")
        job, given, place = dict(state["job"]), dict(state["input"]), state["place"]
        mark = None if place is None else Mark(Unit(place[0][0], tuple(place[0][1:])), int(place[1]), int(place[2]))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise PlanError("state= is not what .state() of an iteration has returned; pass that, as it was") from error
    now = state_of(plan, None)
    found = differences(job, now["job"])
    if given != now["input"]:
        found.append("the input has changed")
    if found:
        raise ResumeError(f"state= is another job's: {'; '.join(found)}; {ANEW}")
    return mark


def _cut_by_time(node: AnyNode) -> AnyNode | None:
    """Return a step that hands rows on to a node as they get ready, however many; a shuffle cuts them anew."""
    stack: list[AnyNode] = list(upstreams(node))
    while stack:
        at = stack.pop()
        if isinstance(at, RunInference) or (isinstance(at, MapBatches) and at.step.kind in ROW_BY_ROW):
            return at
        if not isinstance(at, Shuffle):
            stack.extend(upstreams(at))
    return None


def _input_of(plan: Plan) -> dict[str, Any]:
    digest, count = hashlib.sha256(), 0
    for label, version in _versions(plan):
        digest.update(f"{label}\0{version}\n".encode())
        count += 1
    return {"splits": count, "digest": digest.hexdigest()}


def _versions(plan: Plan) -> Iterator[tuple[str, str]]:
    for read in plan.reads():
        for split in read.source.splits():
            yield split.label, read.source.version(split)
