"""Reading: replicas take splits in order and run the steps fused behind the source."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.join import joined
from headrace.engine.memory import give_back
from headrace.engine.pace import HAND_ON_SECS
from headrace.engine.rereading import reread
from headrace.engine.stage_run import StageRun
from headrace.engine.user_batches import no_rows
from headrace.errors import HeadraceError, SourceError
from headrace.metrics.statistics import SourceStatistics
from headrace.records.block import Block, Unit
from headrace.records.columns import empty_columns
from headrace.records.giants import GIANT_BYTES
from headrace.records.position import END, START
from headrace.sources.extents import changed_file
from headrace.sources.seen import SeenObjects
from headrace.sources.storage import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.engine.channel import Gate
    from headrace.engine.clock import StageClock
    from headrace.engine.commit.retrying import Retrying
    from headrace.engine.memory import MemoryWatch
    from headrace.engine.outlet import Outlet
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.plan.nodes import Read
    from headrace.plan.stages import Stage
    from headrace.sources.source import Split


LOOK_SECS = 0.02
SMALL_BYTES = 2**16
JOINED_BYTES = 2**20
GIANT_SECS = 2.0
"""How long a reader waits, at most, until a giant row has left the memory, before it reads what may be another."""


class ReadStage(StageRun):
    """Reads the splits of one source that some sink still lacks."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        outlet: Outlet,
        *,
        node: Read,
        name: str,
        splits: Sequence[Split],
        base: int,
        gate: Gate,
        memory: MemoryWatch,
        make_task: Callable[[], Task],
        on_split: Callable[[int], str | None],
        fail: Callable[[Block], None],
        outage_secs: float,
        retrying: Retrying | None = None,
    ) -> None:
        super().__init__(stage, state, outlet, inbox=None)
        self._outage_secs = outage_secs
        self._node = node
        self._name = name
        self._splits = splits
        self._base = base
        self._gate = gate
        self._memory = memory
        self._make_task = make_task
        self._on_split = on_split
        self._fail = fail
        self._retrying = retrying
        self._seen = SeenObjects(getattr(getattr(node.source, "fileset", None), "storage_options", None))
        self._next = 0
        self._take = threading.Lock()
        self._counts = {"read": 0, "found": 0, "rows": 0, "failed": 0, "bytes": 0, "retried": 0}

    def work(self, number: int, clock: StageClock) -> None:
        """Read one split after another."""
        task = clock.task = self._make_task()
        self._tasks.append(task)
        try:
            task.open()
            self._leave_a_core(number, clock)
            while not self.outlet.unwanted and (index := self._take_split(clock)) is not None:
                blocks = self._read(index)
                while self._read_one(blocks, task, clock):
                    pass
                self._count("read", 1)
                self._count("bytes", self._splits[index].size_bytes)
        finally:
            task.close()

    def _read_one(self, blocks: Iterator[Block], task: Task, clock: StageClock) -> bool:
        """Make the next block of a split and send it on; say whether there was one."""
        with self._gate.turn():
            block = next(blocks, None)
            if block is None:
                return False
            giant = block.nbytes > GIANT_BYTES
            if giant:
                give_back()  # what parsing it took, which others will need
            pieces = task.process(block)
            del block
            for piece in pieces:
                self.emit(piece, clock)
                del piece
        if giant:
            with clock.blocking():
                self._memory.recover(GIANT_SECS)
        return True

    def _leave_a_core(self, number: int, clock: StageClock) -> None:
        """Let the last of several replicas wait while a model loads: the run can end no sooner than that is done."""
        if number == 0 or number < self.stage.replicas - 1:
            return
        with clock.blocking():
            while self._next < len(self._splits) and not self.state.stopping.is_set():
                if self.state.models_loaded.wait(LOOK_SECS):
                    return

    def _take_split(self, clock: StageClock) -> int | None:
        with self._take:
            while self._next < len(self._splits) and not self.outlet.needs(Unit(self._base + self._next)):
                self._next += 1
                self._counts["found"] += 1
            if self._next >= len(self._splits):
                return None
            index = self._next
            self._next += 1
        with clock.blocking():
            self._gate.wait(self._base + index)
        return index

    def _read(self, index: int) -> Iterator[Block]:
        split, unit = self._splits[index], Unit(self._base + index)
        digest = self._on_split(index)
        if digest is not None and changed_file(split) is not None:
            digest = None  # not of what was listed
        self._seen.look(split)
        try:
            for block in up_to_end(coalesced(self._blocks_of(split))):
                block = replace(block, unit=unit)
                if self._retrying is not None:
                    block = self._retrying.select(block)
                self._count("rows", block.num_rows)
                if block.failures:
                    self._count("failed", len(block.failures))
                    self._fail(block)
                    block = replace(block, failures=tuple(replace(f, stage=self._name) for f in block.failures))
                waiting = [block]
                del block  # it may be large, and is kept by nobody but whoever works on it
                yield waiting.pop()
                if self.outlet.unwanted:
                    return
            path = changed_file(split)
            if path is not None and (digest is None or digest != self._node.source.fingerprint(split)):
                raise changed(path)
            if (path := self._seen.changed(split)) is not None:
                raise changed(path)
        except HeadraceError:
            raise
        except OSError as error:
            raise SourceError(f"{split.label} cannot be read: {error}") from error

    def _blocks_of(self, split: Split) -> Iterator[Block]:
        source, columns = self._node.source, self._node.columns
        return reread(
            lambda: source.read(split, columns=columns),
            pause=self.state.pause,
            retried=lambda: self._count("retried", 1),
            outage_secs=self._outage_secs,
        )

    def _count(self, key: str, delta: int) -> None:
        with self._take:
            self._counts[key] += delta

    def source_statistics(self) -> SourceStatistics:
        """Return a snapshot of the reading."""
        counts = self._counts
        return SourceStatistics(
            name=self._node.source.name,
            splits=len(self._splits),
            splits_read=counts["read"],
            splits_found_finished=counts["found"],
            rows=counts["rows"],
            failed=counts["failed"],
            bytes_total=sum(split.size_bytes for split in self._splits),
            bytes_read=counts["bytes"],
            retried=counts["retried"],
            passed_over=getattr(self._node.source, "passed_over", 0),
        )


def coalesced(blocks: Iterable[Block], *, clock: Callable[[], float] = time.monotonic) -> Iterator[Block]:
    """Join small blocks that follow one another, as tiny files give them: each costs as much as thousands of rows.

    None waits longer than a moment for others, where files come slowly.
    """
    waiting: list[Block] = []
    nbytes, since = 0, 0.0
    for block in blocks:
        if waiting and not (block.nbytes <= SMALL_BYTES and block.batch.schema.equals(waiting[0].batch.schema)):
            yield joined(waiting)
            waiting, nbytes = [], 0
        if block.nbytes > SMALL_BYTES:
            yield block
        else:
            since = since if waiting else clock()
            waiting.append(block)
            nbytes += block.nbytes
            if nbytes > JOINED_BYTES or clock() - since > HAND_ON_SECS:
                yield joined(waiting)
                waiting, nbytes = [], 0
        del block
    if waiting:
        yield joined(waiting)


def up_to_end(blocks: Iterable[Block]) -> Iterator[Block]:
    """Let the last block of a split cover it up to its end; a split without rows gives one empty block."""
    waiting: list[Block] = []
    for block in blocks:
        before = waiting.pop() if waiting else None
        if before is not None and before.start < before.end:
            yield before
        waiting.append(block)
        if block.nbytes > GIANT_BYTES:  # it does not wait for the next one, which may be another
            rest = Block(batch=no_rows(block.batch.schema), unit=Unit(0), start=block.end, end=block.end)
            del before, block
            yield waiting.pop()
            waiting.append(rest)
    if not waiting:
        waiting.append(Block(batch=empty_columns(0), unit=Unit(0), start=START, end=END))
    yield replace(waiting.pop(), end=END)
