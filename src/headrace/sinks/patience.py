"""Patience: how long a store that is busy or out of reach is asked again."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTAGE_SECS = 60.0
HASTY_SECS = 1.0
"""For a run that is being stopped: a busy store gets another chance, one that is away does not keep the user."""


@dataclass(frozen=True, slots=True, eq=False)
class Patience:
    """The patience of one run; `over` is set when the run is being stopped.

    >>> Patience(5.0).left_secs(waited=3.0)
    2.0
    """

    outage_secs: float = OUTAGE_SECS
    over: threading.Event = field(default_factory=threading.Event)

    def left_secs(self, *, waited: float) -> float:
        """Return how long to go on asking, after so many seconds without an answer; 0 or less: no more."""
        return round((min(HASTY_SECS, self.outage_secs) if self.over.is_set() else self.outage_secs) - waited, 3)

    def pause(self, secs: float) -> None:
        """Wait before the next request, not beyond the moment at which the run is stopped."""
        if self.over.is_set():
            time.sleep(secs)
        else:
            self.over.wait(secs)


_usual = Patience()
_held: list[Patience] = []


@contextmanager
def holding(patience: Patience) -> Iterator[None]:
    """Let requests of this process be as patient as a run wants; of several runs the most patient one decides."""
    _held.append(patience)
    try:
        yield
    finally:
        _held.remove(patience)


def patience() -> Patience:
    """Return the patience that there is now."""
    return max(_held, key=lambda held: held.outage_secs, default=_usual)
