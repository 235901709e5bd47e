"""Limit and shuffle: steps that need the rows in the order of the input, hence one replica."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.engine.failing import failures_by
from headrace.engine.order import Reorder
from headrace.engine.stage_run import StageRun
from headrace.engine.task import StepCounts
from headrace.records.block import Block, Unit
from headrace.records.columns import empty_columns
from headrace.records.position import END, START, Position
from headrace.records.types import conform, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.engine.channel import Channel, Gate
    from headrace.engine.clock import StageClock
    from headrace.engine.outlet import Outlet
    from headrace.engine.state import RunState
    from headrace.plan.lanes import Lane
    from headrace.plan.stages import Stage
    from headrace.records.failure import RowFailure


class OrderedStage(StageRun):
    """Gives blocks to `self.take` in the order of the input."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        outlet: Outlet,
        inbox: Channel,
        *,
        name: str,
        units: Sequence[Unit],
        gate: Gate,
    ) -> None:
        super().__init__(stage, state, outlet, inbox)
        self.name = name
        self.units = units
        self.counts = StepCounts()
        self._gate = gate

    def work(self, number: int, clock: StageClock) -> None:
        """Reorder, take, and send on."""
        reorder = Reorder(self.units)
        while (block := self.receive(clock)) is not None:
            for ready in in_order(reorder, block, self._gate):
                self.counts.rows_in += ready.num_rows
                for out in self.take(ready):
                    self.counts.rows_out += out.num_rows
                    self.emit(out, clock)
            if self.enough or self.outlet.unwanted:
                self._refuse_more(reorder)
        for out in self.rest():
            self.counts.rows_out += out.num_rows
            self.emit(out, clock)
        self.counts.filtered = self.counts.rows_in - self.counts.rows_out

    def _refuse_more(self, reorder: Reorder) -> None:
        """Drop what comes, and what waits for it: readers must not wait for room that it takes up."""
        assert self.inbox is not None
        self.inbox.discard()
        self._gate.hold(-reorder.held_bytes, keeper=id(reorder), needed_split=None)
        reorder.clear()

    @property
    def enough(self) -> bool:
        """Whether no more input is wanted."""
        return False

    def take(self, block: Block) -> Iterator[Block]:
        """Handle the next block in order."""
        raise NotImplementedError

    def rest(self) -> Iterator[Block]:
        """Yield what is due at the end of the input."""
        return iter(())

    def step_counts(self) -> Mapping[str, StepCounts]:
        """Return the one step's counts."""
        return {self.name: self.counts}


class LimitStage(OrderedStage):
    """Passes the first rows on, then ends every unit."""

    def __init__(self, *args: object, rows: int, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._left = rows
        self._ended: Unit | None = None
        self._finished = False

    @property
    def enough(self) -> bool:
        """Whether the rows are together."""
        return self._finished

    def take(self, block: Block) -> Iterator[Block]:
        """Pass a block on, cut where the limit falls."""
        if self._finished:
            return
        if block.num_rows > self._left:
            kept = block.cut([self._left])[0] if self._left else replace(block, failures=())
            block = replace(kept, batch=kept.batch.slice(0, self._left), ordinals=kept.ordinal_array()[: self._left])
        self._left -= block.num_rows
        if self._left == 0:
            self._finished = True
            self._ended = block.unit
            block = replace(block, end=END)
        yield block

    def rest(self) -> Iterator[Block]:
        """End the units behind the limit, so that sinks know that nothing more comes."""
        if self._ended is None:
            return
        for unit in self.units:
            if unit > self._ended:
                yield Block(batch=empty_columns(0), unit=unit, start=START, end=END)


class ShuffleStage(OrderedStage):
    """Draws rows at random from a bounded buffer; makes an order of its own, the same for the same seed."""

    def __init__(
        self,
        *args: object,
        seed: int,
        buffer_rows: int,
        unit: Unit,
        lanes: Mapping[str, Lane],
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._random = np.random.default_rng(seed)
        self._buffer_rows = buffer_rows
        self._unit = unit
        self._lanes = lanes
        self._waiting: list[pa.RecordBatch] = []
        self._failures: list[tuple[Unit, RowFailure]] = []
        self._errors = 0
        self._rows = 0
        self._sent = 0

    def take(self, block: Block) -> Iterator[Block]:
        """Fill the buffer; whenever a row finds it full, send half of it in random order.

        What is drawn must not depend on how the rows are cut into blocks, or a resumed run would draw other rows.
        """
        ordinals = block.ordinal_array()
        self._failures.extend((block.unit, failure) for failure in failures_by(self._lanes, block))
        self._errors += block.errors
        first = 0
        while block.num_rows - first > (room := self._buffer_rows - self._rows):
            self._keep(block.batch.slice(first, room))
            first += room
            yield self._draw(max(1, self._buffer_rows // 2), before=(block.unit, int(ordinals[first])))
        self._keep(block.batch.slice(first))

    def rest(self) -> Iterator[Block]:
        """Send what is left and end the unit."""
        yield replace(self._draw(self._rows, before=None), end=END)

    def _keep(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            self._rows += batch.num_rows

    def _draw(self, count: int, *, before: tuple[Unit, int] | None) -> Block:
        """Draw rows, and take along the failures that stand before a place in the input (None: all)."""
        batch = empty_columns(0)
        if self._rows:
            schema = unify_schemas([b.schema for b in self._waiting])
            whole = pa.Table.from_batches([conform(b, schema) for b in self._waiting])
            mixed = whole.take(pa.array(self._random.permutation(self._rows))).combine_chunks().to_batches()[0]
            batch = mixed.slice(0, count)
            self._waiting = [mixed.slice(count)] if count < self._rows else []
            self._rows -= count
        start: Position = (self._sent,)
        self._sent += count
        failures, later = [], []
        for unit, failure in self._failures:
            if before is None or (unit, failure.ordinal) < before:
                failures.append(replace(failure, ordinal=start[0]))
            else:
                later.append((unit, failure))
        self._failures = later
        errors, self._errors = self._errors, 0
        return Block(
            batch=batch, unit=self._unit, start=start, end=(self._sent,), failures=tuple(failures), errors=errors
        )


def in_order(reorder: Reorder, block: Block, gate: Gate) -> Iterator[Block]:
    """Add a block to a reorder buffer whose bytes the gate counts."""
    held = reorder.held_bytes
    ready = list(reorder.add(block))
    gate.hold(reorder.held_bytes - held, keeper=id(reorder), needed_split=reorder.needed_split)
    return iter(ready)
