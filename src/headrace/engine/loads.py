"""Loads of models that are under way, for whoever waits to see what for."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.metrics.statistics import Loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Loads:
    """Notes when loads began. Any thread may use it.

    >>> from headrace.testing import ManualClock
    >>> clock = ManualClock()
    >>> loads = Loads(clock)
    >>> with loads.noted("acme"):
    ...     clock.advance(12)
    ...     print(loads.statistics())
    (Loading(model='acme', secs=12.0),)
    >>> loads.statistics()
    ()
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[object, tuple[str, float]] = {}

    @contextmanager
    def noted(self, model: str) -> Iterator[None]:
        """Note that a model is being loaded."""
        this = object()
        self._began[this] = (model, self._clock())
        try:
            yield
        finally:
            del self._began[this]

    def statistics(self) -> tuple[Loading, ...]:
        """Return the loads under way, with the time that each has taken."""
        now = self._clock()
        return tuple(Loading(model=model, secs=now - began) for model, began in list(self._began.values()))
