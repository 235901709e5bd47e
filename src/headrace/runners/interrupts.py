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
    # An application's own handlers go before ours.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if before[number] == usual:
            signal.signal(number, _interrupt)
    try:
        yield
    except (KeyboardInterrupt, _Terminated) as interrupt:
        if isinstance(interrupt, RunInterrupted):
            raise
        number = signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT
        _next_one_ends()
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


def _interrupt(number: int, _frame: FrameType | None) -> Any:
    _next_one_ends()  # here, since behind the raising another one could come first
    raise _Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _next_one_ends() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_at_once)


def _leave_at_once(number: int, _frame: FrameType | None) -> Any:
    os._exit(128 + number)


def _end_quietly() -> None:
    """Let a script that does not handle the interruption end with its message, not with a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        # One more Ctrl-C may come while the interruption is on its way up.
        told = error.__context__ if type(error) is KeyboardInterrupt else error
        if not isinstance(told, RunInterrupted):
            before(kind, error, traceback)
            return
        if not hasattr(sys, "ps1"):
            _next_one_ends()
        print(f"headrace: {told}", file=sys.stderr)  # noqa: T201 - the last word of a script
        if not hasattr(sys, "ps1"):
            _die_of(told.signal_number)

    sys.excepthook = hook


def _die_of(number: int) -> None:
    """End the process as the signal would have, so that shells and schedulers see what happened."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
