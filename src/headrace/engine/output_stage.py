"""The ends of a plan: blocks to a committer, or to the caller."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.balance import verdict
from headrace.engine.failing import failures_by
from headrace.engine.order import Reorder
from headrace.engine.ordered_stage import in_order
from headrace.engine.outlet import Outlet
from headrace.engine.stage_run import StageRun
from headrace.errors import BalanceError
from headrace.records.giants import giants_apart
from headrace.sinks.columns import without_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.engine.channel import Channel, Gate
    from headrace.engine.clock import StageClock
    from headrace.engine.commit.committer import Committer
    from headrace.engine.commit.done import Place
    from headrace.engine.state import RunState
    from headrace.engine.task import StepCounts
    from headrace.plan.lanes import Lane
    from headrace.plan.stages import Stage
    from headrace.records.block import Block, Unit
    from headrace.records.failure import RowFailure


class WriteStage(StageRun):
    """Hands blocks to the sink's committer, with those failures that are this sink's to record."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        inbox: Channel,
        *,
        committer: Committer,
        owned_steps: Mapping[str, Lane],
        steps: Mapping[str, Lane],
        empty_schema: Callable[[], pa.Schema | None],
        behind: Callable[[], Iterable[StageRun]],
        gate: Gate,
    ) -> None:
        super().__init__(stage, state, Outlet([]), inbox)
        self.committer = committer
        self._owned, self._steps = owned_steps, steps
        self._empty_schema = empty_schema
        self._behind = behind
        self._gate = gate
        self._crowding = False
        self._causes: dict[str, str] = {}
        self.rows = 0

    def work(self, number: int, clock: StageClock) -> None:
        """Commit block after block; publish the rest if the counts add up.

        An output for which every row failed is closed as such, and the next run begins it afresh.
        """
        while self._commit_next(clock):
            pass
        error = verdict(self._behind(), self._causes)
        if isinstance(error, BalanceError):
            raise error
        if error is not None and not self.committer.statistics().rows_before and not self.rows:
            self.committer.finish(hopeless=True)
            raise error
        self.committer.finish(schema=None if self.rows else self._empty_schema())

    def _failures_of(self, block: Block) -> tuple[RowFailure, ...]:
        """Return the failures that this sink records, and those of rows that it lacks and another sink records."""
        owned = failures_by(self._owned, block)
        others = {name: lane for name, lane in self._steps.items() if name not in self._owned}
        return (*owned, *(replace(failure, elsewhere=True) for failure in failures_by(others, block)))

    def _commit_next(self, clock: StageClock) -> bool:
        """Hand the next block on; say whether there was one."""
        block = self.receive(clock)
        if block is None:
            return False
        if block.failures:
            for failure in block.failures:
                self._causes.setdefault(failure.stage, f"{failure.error_type}: {failure.message}")
            block = replace(block, failures=self._failures_of(block))
        block = block.with_batch(without_objects(block.batch))
        for missing in self.committer.done.missing(block):
            if self.committer.retrying is not None:
                missing = self.committer.retrying.select(missing)
            for piece in giants_apart(missing):
                self.rows += piece.num_rows
                self.committer.put(piece)
        self._keep_disk_free()
        return True

    def _keep_disk_free(self) -> None:
        needed = self.committer.waits_for
        if needed is not None or self._crowding:
            self._gate.crowd(id(self), needed)
        self._crowding = needed is not None

    def step_counts(self) -> Mapping[str, StepCounts]:
        """Sinks report for themselves."""
        return {}


class CollectStage(StageRun):
    """Gives the caller's thread the blocks in the order of the input; it has no thread of its own."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        inbox: Channel,
        *,
        units: Sequence[Unit],
        gate: Gate,
        frontier: Place | None = None,
    ) -> None:
        super().__init__(stage, state, Outlet([]), inbox)
        self._reorder = Reorder(units, frontier=frontier)
        self._gate = gate

    def start(self) -> None:
        """Do nothing: the caller pulls."""

    def blocks(self) -> Iterator[Block]:
        """Yield blocks in order until the input ends."""
        assert self.inbox is not None
        while (block := self.inbox.get()) is not None:
            yield from in_order(self._reorder, block, self._gate)

    def step_counts(self) -> Mapping[str, StepCounts]:
        """Collecting counts nothing."""
        return {}
