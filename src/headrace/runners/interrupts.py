"""Ctrl-C and SIGTERM: an orderly stop, told in one message; a second Ctrl-C ends the process at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType


class _Terminated(BaseException):
    """SIGTERM, raised in the main thread."""


@contextmanager
def interruptible(stop: Callable[[], None], *, finished: Callable[[], str] | None = None) -> Iterator[None]:
    """Call `stop` when the block is interrupted, and raise `RunInterrupted` with the way on.

    `finished` says what stays, as in "36 rows are finished and safe"; None where a run leaves nothing behind.
    Outside the main thread, where Python delivers no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if before[signal.SIGTERM] == signal.SIG_DFL:  # an application's own handler goes before ours
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except (KeyboardInterrupt, _Terminated) as interrupt:
        if isinstance(interrupt, RunInterrupted):
            raise
        number = signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT
        for other in before:
            signal.signal(other, _leave_at_once)
        stop()
        _end_quietly()
        raise RunInterrupted(_message(number, finished), signal_number=number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _message(number: signal.Signals, finished: Callable[[], str] | None) -> str:
    if finished is None:
        return f"interrupted by {number.name}"
    return f"interrupted by {number.name}; {finished()}. Run the same again to go on from there"


def _terminate(_number: int, _frame: FrameType | None) -> Any:
    raise _Terminated


def _leave_at_once(number: int, _frame: FrameType | None) -> Any:
    os._exit(128 + number)


def _end_quietly() -> None:
    """Let a script that does not handle the interruption end with its message, not with a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not isinstance(error, RunInterrupted):
            before(kind, error, traceback)
            return
        print(f"headrace: {error}", file=sys.stderr)  # noqa: T201 - the last word of a script
        if not hasattr(sys, "ps1"):
            _die_of(error.signal_number)

    sys.excepthook = hook


def _die_of(number: int) -> None:
    """End the process as the signal would have, so that shells and schedulers see what happened."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
