"""A clock that stands still until it is told to go on."""

from __future__ import annotations


class ManualClock:
    """Takes the place of `time.monotonic` where a test decides what time it is.

    >>> clock = ManualClock()
    >>> clock.advance(0.25)
    >>> clock()
    0.25
    """

    def __init__(self, start_secs: float = 0.0) -> None:
        self._now_secs = start_secs

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now_secs

    def advance(self, secs: float) -> None:
        """Let time pass.

        Raises:
            ValueError: it would run backwards.
        """
        if secs < 0:
            raise ValueError(f"time does not run backwards: {secs}")
        self._now_secs += secs
