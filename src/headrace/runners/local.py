"""The embedded runner: a plan on this machine."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.engine.execution import Execution
from headrace.engine.options import ExecutionOptions
from headrace.errors import RunInterrupted
from headrace.engine.checks import check
from headrace.plan.rules import optimised
from headrace.runners.result import RunResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

    from headrace.metrics.statistics import RunStatistics
    from headrace.plan.graph import Plan
    from headrace.plan.steps import OnError
    from headrace.records.block import Block


def run(
    plan: Plan,
    *,
    on_error: OnError = "fail",
    dead_letters: str | None = None,
    num_cpus: int | None = None,
    progress: str | bool = False,
) -> RunResult:
    """Run a plan to its end.

    `progress` is "auto", "rich", "plain" or "none"; True is "auto". Ctrl-C and SIGTERM stop the run within seconds: what is
    committed stays, and the same command goes on from there.

    Raises:
        RunInterrupted: Ctrl-C or SIGTERM.
        HeadraceError: the run failed.
    """
    check(plan)
    execution = Execution(
        optimised(plan, on_error=on_error),
        ExecutionOptions.of(on_error=on_error, dead_letters=dead_letters, num_cpus=num_cpus),
    )
    mode = {True: "auto", False: "none"}.get(progress, progress) if isinstance(progress, bool) else progress
    with _interruptible(execution):
        try:
            execution.start()
            with _progress(execution, mode):
                execution.wait()
        finally:
            execution.close()
    return RunResult(execution.statistics())


def blocks(plan: Plan, *, on_error: OnError = "fail", num_cpus: int | None = None) -> Iterator[Block]:
    """Run a plan that ends in a `Collect`, yielding its blocks in the order of the input; stop when the caller does."""
    check(plan)
    execution = Execution(
        optimised(plan, on_error=on_error), ExecutionOptions.of(on_error=on_error, num_cpus=num_cpus)
    )
    try:
        execution.start()
        yield from execution.blocks()
    finally:
        execution.close()


def drain(plan: Plan) -> RunStatistics:
    """Run a plan that ends in a `Collect`, drop its rows, and return what the run did."""
    check(plan)
    execution = Execution(optimised(plan, on_error="fail"), ExecutionOptions.of())
    try:
        execution.start()
        for _ in execution.blocks():
            pass
        return execution.statistics()
    finally:
        execution.close()


@contextmanager
def _progress(execution: Execution, mode: str) -> Iterator[None]:
    if mode == "none":
        yield
        return
    from headrace.metrics.progress import show_progress

    with show_progress(execution.statistics, stream=sys.stderr, mode=mode):  # type: ignore[arg-type]
        yield


class _Terminated(BaseException):
    """SIGTERM, raised in the main thread."""


@contextmanager
def _interruptible(execution: Execution) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an orderly stop, told in one message; a second Ctrl-C ends the process at once."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if main else None
    try:
        yield
    except (KeyboardInterrupt, _Terminated) as interrupt:
        number = signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT
        if main:
            signal.signal(signal.SIGINT, _leave_at_once)
            signal.signal(signal.SIGTERM, _leave_at_once)
        try:
            execution.close()
        finally:
            if main:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        done = sum(sink.rows + sink.rows_before for sink in execution.statistics().sinks)
        raise RunInterrupted(
            f"interrupted by {number.name}; {done:,} rows are finished and stay. Run the same again to go on from there",
            signal_number=number,
        ) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _terminate(_number: int, _frame: FrameType | None) -> Any:
    raise _Terminated


def _leave_at_once(number: int, _frame: FrameType | None) -> Any:
    import os

    os._exit(128 + number)
