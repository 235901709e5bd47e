"""The embedded runner: a plan on this machine."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.engine.checks import check
from headrace.engine.execution import Execution
from headrace.engine.options import ExecutionOptions
from headrace.metrics.quantities import count
from headrace.plan.check import check_dead_letters
from headrace.plan.rules import optimised
from headrace.runners.interrupts import interruptible
from headrace.runners.result import RunResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.engine.commit.done import Done
    from headrace.metrics.statistics import RunStatistics
    from headrace.plan.graph import Plan
    from headrace.records.block import Block


def run(plan: Plan, options: ExecutionOptions, *, progress: str | bool = False) -> RunResult:
    """Run a plan to its end.

    `progress` is "auto", "rich", "plain" or "none"; True is "auto". Ctrl-C and SIGTERM stop the run within seconds:
    what is committed stays, and the same command goes on from there.

    Raises:
        RunInterrupted: Ctrl-C or SIGTERM.
        HeadraceError: the run failed.
    """
    execution = _checked(plan, options)
    mode = ("auto" if progress else "none") if isinstance(progress, bool) else progress
    try:
        with interruptible(execution.close, finished=lambda: _finished(execution)), _progress(execution, mode):
            execution.start()
            execution.wait()
    finally:
        execution.close()
    return RunResult(execution.statistics())


def blocks(plan: Plan, *, collected: Done | None = None) -> Iterator[Block]:
    """Run a plan that ends in a `Collect`, yielding its blocks in the order of the input; stop when the caller does.

    What the caller has `collected` before comes no more.
    """
    execution = _checked(plan, ExecutionOptions.of(), collected=collected)
    try:
        with interruptible(execution.close):
            execution.start()
        blocks = execution.blocks()
        # Between two pulls signals are the caller's own.
        while (block := _next(blocks, execution)) is not None:
            yield block
    finally:
        execution.close()


def _next(blocks: Iterator[Block], execution: Execution) -> Block | None:
    with interruptible(execution.close):
        return next(blocks, None)


def drain(plan: Plan) -> RunStatistics:
    """Run a plan that ends in a `Collect`, drop its rows, and return what the run did."""
    execution = _checked(plan, ExecutionOptions.of())
    try:
        with interruptible(execution.close):
            execution.start()
            for _ in execution.blocks():
                pass
        return execution.statistics()
    finally:
        execution.close()


def _checked(plan: Plan, options: ExecutionOptions, *, collected: Done | None = None) -> Execution:
    """Check a plan, which may take a while where there are many files; stopped meanwhile, it leaves nothing."""
    with interruptible(lambda: None):
        check(plan)
        check_dead_letters(plan, options.dead_letters)
        return Execution(optimised(plan, on_error=options.on_error), options, collected=collected)


@contextmanager
def _progress(execution: Execution, mode: str) -> Iterator[None]:
    if mode == "none":
        yield
        return
    from headrace.metrics.progress import show_progress

    with show_progress(execution.progress, stream=sys.stderr, mode=mode):  # type: ignore[arg-type]
        yield


def _finished(execution: Execution) -> str:
    """Say what an interruption leaves behind, as in "36 rows are finished and safe"."""
    sinks = execution.statistics().sinks
    if len(sinks) == 1:
        return f"{count(sinks[0].rows_saved, 'row is', 'rows are')} finished and safe"
    return "finished and safe are " + ", ".join(f"{count(s.rows_saved, 'row')} of {s.name}" for s in sinks)
