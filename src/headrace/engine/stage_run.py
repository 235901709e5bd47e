"""A stage at work: its replicas, their clocks, and the closing of its outlet when the last one ends."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.engine.channel import Cancelled
from headrace.engine.clock import StageClock
from headrace.engine.failing import leaving
from headrace.engine.processes.crew import Crew
from headrace.engine.task import StepCounts
from headrace.engine.watchdog import Glance
from headrace.metrics.statistics import Agreement, StageStatistics, StepStatistics
from headrace.model.agreement import COMPARED, EQUAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.channel import Channel
    from headrace.engine.outlet import Outlet
    from headrace.engine.processes.crew import Member
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.metrics.statistics import (
        Loading,
        ManagerStatistics,
        ModelStatistics,
        RecallStatistics,
        UpdateStatistics,
    )
    from headrace.plan.stages import Stage
    from headrace.records.block import Block


LOOK_SECS = 0.5
"""How often a replica that waits asks whether it has to leave its crew."""


class StageRun:
    """Runs a stage's replicas. Kinds of stages differ in `work`, which each replica runs once."""

    def __init__(self, stage: Stage, state: RunState, outlet: Outlet, inbox: Channel | None) -> None:
        self.stage = stage
        self.state = state
        self.outlet = outlet
        self.inbox = inbox
        self._clocks: list[StageClock] = []
        self._tasks: list[Task] = []
        self._started = self._alive = 0
        self._lock = threading.Lock()
        self._crew = Crew()
        state.on_stop(self._crew.cancel)

    def start(self) -> None:
        """Start the replicas."""
        # All are alive before the first one can end, so that the outlet is not closed early.
        self._started = self._alive = self.stage.replicas
        for number in range(self.stage.replicas):
            self._spawn(number)

    def add_replica(self) -> None:
        """Start one more replica while others are at work."""
        with self._lock:
            if not self._alive:
                return
            number = self._started
            self._started += 1
            self._alive += 1
        self._spawn(number)

    def _spawn(self, number: int) -> None:
        self.state.spawn(lambda: self._replica(number), f"{self.stage.name}#{number}")

    def work(self, number: int, clock: StageClock) -> None:
        """Do one replica's share of the stage's work."""
        raise NotImplementedError

    def emit(self, block: Block, clock: StageClock) -> None:
        """Send a block on."""
        with clock.blocking():
            self.outlet.put(block)
        clock.moves += 1

    def receive(self, clock: StageClock, timeout_secs: float | None = None) -> Block | None:
        """Take the next block from the inbox; None at its end."""
        assert self.inbox is not None
        with clock.starving():
            block = self.inbox.get(timeout_secs)
        clock.moves += block is not None
        return block

    def run_task(self, task: Task, clock: StageClock, member: Member | None = None) -> None:
        """Pass blocks from the inbox through a task until there are no more, or the replica has to leave its crew."""
        with self._lock:
            self._tasks.append(task)
        clock.task = task
        try:
            task.open()
            while self._pass_one(task, clock, member):
                if self.outlet.unwanted:
                    assert self.inbox is not None
                    self.inbox.discard()
        finally:
            task.close()

    def _pass_one(self, task: Task, clock: StageClock, member: Member | None) -> bool:
        """Pass the next block through a task, keeping nothing of it; say whether there was one."""
        block = self._receive_as(member, clock)
        if block is None:
            return False
        pieces = task.process(block)
        del block
        for piece in pieces:
            self.emit(piece, clock)
            del piece
        return True

    def _receive_as(self, member: Member | None, clock: StageClock) -> Block | None:
        if member is None:
            return self.receive(clock)
        while not member.dismissed():
            with suppress(TimeoutError):
                return self.receive(clock, LOOK_SECS)
        return None

    def _replica(self, number: int) -> None:
        clock = StageClock()
        self._clocks.append(clock)
        try:
            with clock.running():
                self.work(number, clock)
        except BaseException as error:
            if not isinstance(error, (Exception, Cancelled)):
                error = leaving(self.stage.name, error)
            # Before this replica counts as ended: the last one must not close the outlet as if all were well.
            self.state.fail_unless_cancelled(error)
        with self._lock:
            self._alive -= 1
            last = self._alive == 0
        if last and not self.state.stopping.is_set():
            self.outlet.close()

    def tasks(self) -> list[Task]:
        """Return what the replicas run."""
        return list(self._tasks)

    def time_limits(self) -> list[float]:
        """Return how long calls may take that have a limit."""
        return [step.timeout_secs for step in self.stage.steps if step.timeout_secs is not None]

    def glances(self) -> list[Glance]:
        """Return what each replica that has not ended does at this moment."""
        return [
            Glance(
                stage=self.stage.name,
                replica=number,
                busy=clock.state == "busy",
                token=clock.progress(),
                doing=clock.doing,
            )
            for number, clock in enumerate(list(self._clocks))
            if clock.state is not None
        ]

    def worker_pids(self) -> list[int]:
        """Return the ids of worker processes at work for this stage."""
        pids = [getattr(task, "pid", None) for task in self.tasks()]
        return [pid for pid in pids if pid is not None]

    def step_counts(self) -> Mapping[str, StepCounts]:
        """Sum the counts of all replicas, by step."""
        total: dict[str, StepCounts] = {}
        for task in list(self._tasks):
            for name, counts in task.counts().items():
                total.setdefault(name, StepCounts()).add(counts)
        return total

    def statistics(self) -> StageStatistics:
        """Return a snapshot."""
        sums = [clock.totals() for clock in self._clocks]
        busy, starved, blocked = (sum(part) for part in zip(*sums, strict=True)) if sums else (0.0, 0.0, 0.0)
        whole = (busy + starved + blocked) or 1.0
        fans_out = {step.name: step.fans_out for step in self.stage.steps}
        steps = tuple(
            StepStatistics(
                name=name,
                rows_in=c.rows_in,
                rows_out=c.rows_out,
                filtered=c.filtered,
                failed=c.failed,
                with_error=c.with_error,
                retried=c.retried,
                seconds=c.seconds,
                fans_out=fans_out.get(name, False),
                agreement=_agreement(c.tallies),
            )
            for name, c in self.step_counts().items()
        )
        return StageStatistics(
            name=self.stage.name,
            replicas=len(self._clocks),
            kind="process" if self.stage.isolation == "process" else "thread",
            steps=steps,
            busy=busy / whole,
            starved=starved / whole,
            blocked=blocked / whole,
            secs=busy + starved + blocked,
            copied=self.outlet.copied,
            queue_fill=self.inbox.fill() if self.inbox is not None else 0.0,
            model=self.model_statistics(),
            recall=self.recall_statistics(),
            manager=self.manager_statistics(),
            updates=self.update_statistics(),
            loading=self.loading(),
            restarts=sum(getattr(task, "restarts", 0) for task in self.tasks()),
            out_of_memory=sum(getattr(task, "out_of_memory", 0) for task in self.tasks()),
        )

    def model_statistics(self) -> ModelStatistics | None:
        """Return the model's numbers where the stage has one."""
        return None

    def manager_statistics(self) -> ManagerStatistics | None:
        """Return which of its models are in memory where the stage has several."""
        return None

    def update_statistics(self) -> UpdateStatistics | None:
        """Return which versions its model had where those change."""
        return None

    def loading(self) -> tuple[Loading, ...]:
        """Return which models are being loaded."""
        return ()

    def recall_statistics(self) -> RecallStatistics | None:
        """Return what was answered from memory where the stage has one."""
        return None


def _agreement(tallies: Mapping[tuple[str, ...], int]) -> tuple[Agreement, ...]:
    return tuple(
        Agreement(one=one, other=other, rows=rows, equal=tallies.get((EQUAL, one, other), 0))
        for (what, one, other), rows in tallies.items()
        if what == COMPARED
    )
