"""When rows that wait are worth a segment: decided purely, from ages and rates."""

from __future__ import annotations

import math

PATIENCE_SECS = 0.1
"""Rows younger than this are never written to a segment for their age: that is what a kill may cost."""
HORIZON_SECS = 0.5
"""A part that will be full within this time makes its rows durable soon enough by itself."""
LIMIT_SECS = 1.0
"""Rows older than this are written whatever the rate promises."""
SMALL_BYTES = 2**16
"""Arrivals up to this size may be written at once, without patience."""


def should_flush(age_secs: float, *, fill: float, fills_per_sec: float) -> bool:
    """Decide whether rows that have waited for `age_secs` go to a segment.

    `fill` is how full the open part is (0 to 1), `fills_per_sec` how many parts are filled a second.

    >>> should_flush(0.2, fill=0.5, fills_per_sec=4.0), should_flush(0.2, fill=0.5, fills_per_sec=0.1)
    (False, True)
    """
    if age_secs < PATIENCE_SECS:
        return False
    if age_secs >= LIMIT_SECS:
        return True
    return 1.0 - fill > fills_per_sec * HORIZON_SECS


class Allowance:
    """Flushes that need no patience: a burst, then so many a second, which costs nothing to speak of.

    With them a kill costs a short job, or one whose batches take their time, no more than the batch in work.

    >>> allowance = Allowance(burst=2, per_sec=1.0)
    >>> [allowance.take(now=0.0) for _ in range(3)], allowance.take(now=1.0)
    ([True, True, False], True)
    """

    def __init__(self, *, burst: int = 100, per_sec: float = 20.0) -> None:
        self._burst = burst
        self._per_sec = per_sec
        self._left = float(burst)
        self._last: float | None = None

    def take(self, *, now: float) -> bool:
        """Use up one flush, if there is one left at a time in seconds."""
        if self._last is not None:
            self._left = min(self._burst, self._left + (now - self._last) * self._per_sec)
        self._last = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class FillRate:
    """How fast parts fill, with the last half second counting most.

    >>> rate = FillRate()
    >>> rate.observe(0.0, now=10.0); rate.observe(2.0, now=11.0); rate.per_sec
    2.0
    """

    def __init__(self, memory_secs: float = 0.5) -> None:
        self._memory_secs = memory_secs
        self._amount = 0.0
        self._secs = 0.0
        self._last: tuple[float, float] | None = None

    def observe(self, progress: float, *, now: float) -> None:
        """Note how many parts had been filled (a growing number) at a time in seconds."""
        if self._last is not None and now > self._last[1]:
            passed = now - self._last[1]
            decay = math.exp(-passed / self._memory_secs)
            self._amount = self._amount * decay + (progress - self._last[0])
            self._secs = self._secs * decay + passed
        if self._last is None or now > self._last[1]:
            self._last = (progress, now)

    @property
    def known(self) -> bool:
        """Whether any time has been measured."""
        return self._secs > 0

    @property
    def per_sec(self) -> float:
        """Parts filled a second; 0 before anything is known."""
        return self._amount / self._secs if self._secs > 0 else 0.0
