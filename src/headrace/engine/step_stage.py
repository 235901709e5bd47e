"""CPU stages: replicas that pass blocks through fused steps, in threads and, where it pays, worker processes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from headrace.engine.stage_run import StageRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.engine.channel import Channel
    from headrace.engine.clock import StageClock
    from headrace.engine.outlet import Outlet
    from headrace.engine.processes.crew import Crew
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.plan.stages import Stage
    from headrace.records.block import Block

CPU_SECS_BEFORE_WORKERS = 2.0
"""CPU time that a stage may use in threads before it gets worker processes: a small job never pays for them."""

GIL_SHARE = 0.6
"""Share of one core that a stage must have been using to count as held up by the interpreter lock."""

LOCKED_SECS = 250e-6
"""For how long a row of a native step holds the interpreter lock, about: what surrounds the native code."""


class StepStage(StageRun):
    """Runs a task over the inbox; with isolation "auto" worker processes join when the work proves heavy."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        outlet: Outlet,
        inbox: Channel,
        *,
        make_task: Callable[[], Task],
        make_process: Callable[[str, Crew], Task] | None,
    ) -> None:
        super().__init__(stage, state, outlet, inbox)
        self._make_task = make_task
        self._make_process = make_process
        self._cpu_secs, self._rows = 0.0, 0
        self._began = time.perf_counter()
        self._decided = threading.Lock()
        self._workers_wanted = stage.max_process_replicas if make_process is not None else 0

    def work(self, number: int, clock: StageClock) -> None:
        """Pass blocks through one replica's task."""
        in_process = self.stage.isolation == "process" or number >= self.stage.replicas
        if in_process:
            assert self._make_process is not None
            with self._crew.membership() as member:
                self.run_task(self._make_process(f"{self.stage.name}#{number}", self._crew), clock, member)
        else:
            self.run_task(_Metered(self._make_task(), self), clock)

    def used_cpu(self, seconds: float, rows: int) -> None:
        """Count a thread replica's CPU time, and start worker processes once it is clear that they pay."""
        with self._decided:
            self._cpu_secs += seconds
            self._rows += rows
            if not self._workers_wanted or self._cpu_secs < CPU_SECS_BEFORE_WORKERS:
                return
            if self.stage.native and self._cpu_secs >= self._rows * self.stage.replicas * LOCKED_SECS:
                self._workers_wanted = 0  # the lock is free often enough for all threads
                return
            if self._cpu_secs < GIL_SHARE * (time.perf_counter() - self._began):
                self._cpu_secs, self._rows, self._began = 0.0, 0, time.perf_counter()
                return
            wanted, self._workers_wanted = self._workers_wanted, 0
        # The thread replicas stay and feed the last blocks; on n cores n - 1 workers beside them keep all busy.
        for _ in range(max(1, wanted - 1)):
            self.add_replica()


class _Metered:
    """A task whose CPU time is told to its stage after each block."""

    def __init__(self, task: Task, stage: StepStage) -> None:
        self._task = task
        self._stage = stage
        self.open, self.counts, self.close = task.open, task.counts, task.close
        self.overdue = getattr(task, "overdue", lambda now: None)

    def process(self, block: Block) -> Iterator[Block]:
        started = time.thread_time()
        for piece in self._task.process(block):
            self._stage.used_cpu(time.thread_time() - started, piece.num_rows)
            yield piece
            started = time.thread_time()
