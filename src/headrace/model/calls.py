"""Calls of users' code that are under way: noted, so that a hang or a crash can be laid at a row's door."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Call(NamedTuple):
    """What a call is about; the same rows make the same call when they are worked on again."""

    step: int
    """Number of the step in its stage, from 0."""
    first: int
    """Ordinal of the first row."""
    nth: int
    """Which of the rows with that ordinal it is, in the block: a fan-out gives one to all children of a row."""
    rows: int
    """How many rows."""

    def holds(self, other: Call) -> bool:
        """Say whether another call is about a part of these rows (which are in the order of their ordinals)."""
        return other.step == self.step and other.rows < self.rows and other[1:3] >= self[1:3]


class Calls(Protocol):
    """Is told before and after each call. A thread has one call under way at most."""

    def begin(self, step: int, first: int, nth: int, rows: int) -> None:
        """Note a call; raises where it is known that it must not be made."""
        ...

    def end(self) -> None:
        """Note that no call is under way: it has ended, or its step waits for something."""
        ...

    def resume(self) -> None:
        """Note that the call which was noted last goes on."""
        ...


class TimedCalls:
    """The calls under way in this process, with the time each has taken so far.

    >>> calls = TimedCalls({0: 2.0}, clock=iter([10.0]).__next__)
    >>> calls.begin(0, 7, 0, 1)
    >>> calls.overdue(now=11.0), calls.overdue(now=12.5)
    (None, Call(step=0, first=7, nth=0, rows=1))
    """

    def __init__(self, limits_secs: Mapping[int, float], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`limits_secs` says how long a call may take, by number of the step."""
        self._limits, self._clock = limits_secs, clock
        self._running: dict[int, tuple[Call, float]] = {}
        self._last = threading.local()

    def begin(self, step: int, first: int, nth: int, rows: int) -> None:
        """Note a call of this thread."""
        self._last.call = Call(step, first, nth, rows)
        self.resume()

    def end(self) -> None:
        """Note that this thread has no call under way."""
        self._running.pop(threading.get_ident(), None)

    def resume(self) -> None:
        """Note that this thread's last call goes on; its time begins anew."""
        call = getattr(self._last, "call", None)
        if call is not None and call.step in self._limits:
            self._running[threading.get_ident()] = (call, self._clock())

    def overdue(self, now: float) -> Call | None:
        """Return a call that takes longer than it may."""
        for call, since in list(self._running.values()):
            if now - since > self._limits[call.step]:
                return call
        return None


def resting(calls: Calls | None, pause: Callable[[float], None]) -> Callable[[float], None]:
    """Return a pause that does not count as time of the call that it interrupts."""
    if calls is None:
        return pause

    def rest(secs: float) -> None:
        calls.end()
        pause(secs)
        calls.resume()

    return rest
