"""One execution of a plan on this machine, from checking the outputs to the last part."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from headrace.engine.balance import verdict
from headrace.engine.budget import Budget
from headrace.engine.channel import Cancelled
from headrace.engine.choice import Choice
from headrace.engine.commit.disk_budget import DiskBudget
from headrace.engine.input_plan import InputPlan
from headrace.engine.memories import Memories
from headrace.engine.memory import MemoryWatch, keep_freed_memory, own_peak_bytes, share_arenas
from headrace.engine.output_stage import CollectStage
from headrace.engine.read_stage import ReadStage
from headrace.engine.side_inputs import SideInputs
from headrace.engine.state import RunState
from headrace.engine.watchdog import Watchdog
from headrace.engine.wiring import Wiring
from headrace.errors import BalanceError, HeadraceError, RunError
from headrace.metrics.statistics import RunStatistics
from headrace.model import shared
from headrace.plan.graph import Plan, nodes_behind
from headrace.plan.nodes import Collect, RunInference, Write
from headrace.plan.rules import optimised
from headrace.plan.stages import fuse
from headrace.records.failure import told
from headrace.sinks.folder import beginning_here
from headrace.sinks.patience import Patience, holding

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from headrace.engine.commit.committer import Committer
    from headrace.engine.commit.done import Done
    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.retrying import RetriedRow
    from headrace.engine.options import ExecutionOptions
    from headrace.engine.stage_run import StageRun
    from headrace.model.placement import Placed
    from headrace.records.block import Block

SWITCH_SECS = 0.0005
"""How long a thread may keep the interpreter while others wait. Most threads of a run are in native code and want it
for a moment only; with Python's 5 ms they would mostly wait for the one that imports a framework."""

POLL_SECS = 0.2
"""How often the waiting caller looks up, so that Ctrl-C is heard on every platform."""


class Execution:
    """Runs a plan once: `start()`, then `wait()` or `blocks()`, and always `close()`.

    `collected` says what of the blocks the caller has had before; those come no more.
    """

    def __init__(
        self,
        plan: Plan,
        options: ExecutionOptions,
        *,
        collected: Done | None = None,
        side_inputs: SideInputs | None = None,
    ) -> None:
        """`side_inputs` are given where they are made already."""
        self._placement: Mapping[str, Placed] = {}
        if any(isinstance(node, RunInference) for node in plan.nodes):
            from headrace.engine.placing import place_models  # modules that are for models alone

            plan, self._placement = place_models(plan, memory_limit_bytes=options.memory_limit_bytes)
        self._plan, self._options, self._collected = plan, options, collected
        self._given_side_inputs = side_inputs is not None
        self._side_inputs = side_inputs or SideInputs(plan, disk_limit_bytes=options.disk_limit_bytes)
        self._aside: Execution | None = None
        """What reads the rows of a side input now."""
        self._peak_aside_bytes = 0
        self._state = RunState()
        self._committers: dict[int, Committer] = {}
        self._memories = Memories(plan, self._committers)
        self._input = InputPlan(plan, on_change=options.on_change, retry=options.retry_failed)
        self._stages: tuple[StageRun, ...] = ()
        self._watchdog: Watchdog | None = None
        self._switch_secs = sys.getswitchinterval()
        self._began = time.perf_counter()
        self._ended: float | None = None
        self._fused = fuse(plan, cores=options.cores)
        self._budget = Budget.of(options.memory_limit_bytes, stages=self._fused)
        self._memory = MemoryWatch(options.memory_limit_bytes)
        self._disk = DiskBudget(options.disk_limit_bytes)
        self._held = ExitStack()
        """What this run changes for the whole process, until it is closed."""
        self._closed = False

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look at the input, open the outputs, check that both are this job's, and start the stages.

        Raises:
            SourceError, SinkError: before anything is written.
        """
        keep_freed_memory()
        share_arenas(self._options.cores)  # before the first thread gets one of its own
        self._held.enter_context(shared.running())
        self._held.enter_context(holding(Patience(self._options.max_outage_secs, self._state.stopping)))
        try:
            outputs = [output for output in self._plan.outputs if isinstance(output, Write)]
            if outputs:
                self._held.enter_context(beginning_here())
            for output in outputs:
                self._claim(output)
            self._input.settle(self._committers)
            for output in outputs:
                self._committers[id(output)].open(self._input.units.at(output), closed=self._input.closed)
            self._input.record()
            if not self._given_side_inputs:
                self._held.callback(self._side_inputs.close)
                self._make_side_inputs()
        except BaseException:
            self._abort()
            raise
        wiring = Wiring(
            self._plan,
            self._state,
            self._options,
            stages=self._fused,
            budget=self._budget,
            memory=self._memory,
            splits=self._input.splits,
            committers=self._committers,
            on_split=self._input.note,
            memories=self._memories,
            side_inputs=self._side_inputs,
            placement=self._placement,
            collected=self._collected,
        )
        self._stages = stages = wiring.build()
        workers = lambda: [pid for stage in stages for pid in stage.worker_pids()]  # noqa: E731 - a name for it
        self._memory.start(workers, wiring.listeners(), mapped_bytes=self._side_inputs.mapped_bytes)
        collects = any(isinstance(output, Collect) for output in self._plan.outputs)
        self._watchdog = Watchdog(
            stages, self._state, warn_after_secs=self._options.stall_warning_secs, everybody=not collects
        )
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECS))
        try:
            for stage in stages:
                stage.start()
            self._watchdog.start()
        finally:
            self._state.all_started()

    def wait(self) -> None:
        """Wait for the end; raise the error that stopped the run, if one did.

        Raises:
            HeadraceError: the run failed.
        """
        while not self._state.wait(POLL_SECS):
            if self._state.stopping.is_set():
                self._state.join()
                break
        self._end()
        self._raise_error()
        error = verdict(self._stages, {})
        if isinstance(error, BalanceError):
            raise error
        self._memories.finish()

    def blocks(self) -> Iterator[Block]:
        """Yield the collected blocks in order, then do as `wait()`; leaving early stops the run."""
        (collect,) = [stage for stage in self._stages if isinstance(stage, CollectStage)]
        with suppress(Cancelled):
            yield from collect.blocks()
        self.wait()

    def stop(self) -> None:
        """Stop all stages; what is complete is made durable."""
        self._state.stop()
        self._state.join()
        self._end()

    def close(self) -> None:
        """Let everything go; after an error or a stop, unfinished parts are discarded and finished rows kept."""
        if self._closed:
            return
        self._closed = True
        if self._stages and self._ended is None:
            if not self._state.wait(0):
                self.stop()
            self._end()  # where the caller has left, and all stages have noticed by themselves
        self._memories.close()
        self._abort()
        self._held.close()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def progress(self) -> RunStatistics:
        """Return what is to be shown at the moment: of the side input that is being read, or of the run itself."""
        aside = self._aside
        if aside is not None:
            return aside.progress()
        return self.statistics() if self._stages else RunStatistics(elapsed_secs=time.perf_counter() - self._began)

    def statistics(self) -> RunStatistics:
        """Return a snapshot."""
        return RunStatistics(
            elapsed_secs=(self._ended or time.perf_counter()) - self._began,
            done=self._ended is not None,
            peak_memory_bytes=max(self._memory.peak_bytes, self._peak_aside_bytes),
            memory_limit_bytes=self._options.memory_limit_bytes,
            memory_pressure_secs=self._memory.pressed_secs,
            sources=tuple(stage.source_statistics() for stage in self._stages if isinstance(stage, ReadStage)),
            stages=tuple(stage.statistics() for stage in self._stages if stage.stage.kind != "output"),
            sinks=tuple(committer.statistics() for committer in self._committers.values()),
            stalls=() if self._watchdog is None else self._watchdog.stalls(),
            side_inputs=() if self._given_side_inputs else self._side_inputs.statistics(),
        )

    # -- side inputs -----------------------------------------------------------------------------------------------

    def _make_side_inputs(self) -> None:
        self._side_inputs.build(self._run_aside, needed=self._options.retry_failed or not self._is_finished())
        if self._side_inputs.statistics():
            self._peak_aside_bytes = max(self._peak_aside_bytes, own_peak_bytes())

    def _run_aside(self, plan: Plan) -> Generator[Block, None, None]:
        """Run the plan of a side input; those that it uses itself have been made before."""
        options = self._options.aside()
        aside = Execution(optimised(plan, on_error=options.on_error), options, side_inputs=self._side_inputs)
        self._aside = aside
        try:
            aside.start()
            yield from aside.blocks()
        finally:
            aside.close()
            self._peak_aside_bytes = max(self._peak_aside_bytes, aside.statistics().peak_memory_bytes)
            self._aside = None

    def _is_finished(self) -> bool:
        return all(
            isinstance(output, Write) and self._committers[id(output)].done.everything for output in self._plan.outputs
        )

    # -- outputs ---------------------------------------------------------------------------------------------------

    def _claim(self, output: Write) -> None:
        from headrace.engine.commit.committer import Committer
        from headrace.engine.commit.failures import Failures
        from headrace.engine.identity import identity_of

        committer = Committer(
            output.sink,
            identity=identity_of(self._plan, output),
            if_exists=output.if_exists,
            dead_letters=self._dead_letters_of(output),
            dead_letters_format=self._options.dead_letters_format,
            fails_as=None if self._options.on_error == "fail" else self._plan.name_of(output),
            choose=partial(self._choose, output) if self._options.retry_failed else None,
            failures=Failures(self._options.failure_limit, filtered=partial(self._filtered_behind, output)),
            target_part_bytes=output.target_part_bytes,
            rows_per_part=output.rows_per_part,
            memory_budget_bytes=self._budget.committer_bytes,
            backlog_bytes=self._budget.backlog_bytes,
            disk=self._disk,
        )
        committer.claim.take()
        self._committers[id(output)] = committer

    def _choose(self, output: Write, failed: Sequence[FailedRow]) -> list[RetriedRow]:
        return Choice(self._plan, output, self._input.units.at(output))(failed)

    def _dead_letters_of(self, output: Write) -> str | None:
        """Return the folder asked for; several sinks get a folder each inside it."""
        folder = self._options.dead_letters
        several = sum(isinstance(other, Write) for other in self._plan.outputs) > 1
        return f"{folder.rstrip('/')}/{self._plan.name_of(output)}" if folder and several else folder

    def _filtered_behind(self, output: Write) -> int:
        """Count the rows that steps in front of an output have filtered out."""
        names = {self._plan.name_of(node) for node in nodes_behind(self._plan, output)}
        counts = [item for stage in self._stages for item in stage.step_counts().items()]
        return sum(count.filtered for name, count in counts if name in names)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self._ended is None:
            sys.setswitchinterval(self._switch_secs)
            self._ended = time.perf_counter()
            self._memory.stop()

    def _abort(self) -> None:
        for committer in self._committers.values():
            committer.abort()

    def _raise_error(self) -> None:
        error = self._state.error
        if error is None:
            return
        if isinstance(error, HeadraceError):
            raise error
        if isinstance(error, MemoryError):
            raise RunError("out of memory; use smaller batches (max_batch_size) or fewer replicas") from error
        raise RunError(f"the run failed inside Headrace ({told(error)}); this is a bug, please report it") from error
