"""Where a stage's time goes: busy, starved (waiting for input) or blocked (waiting for room in the output)."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator


class StageClock:
    """Adds up what a stage's replicas do with their time. Each replica has its own; readers sum over them."""

    __slots__ = ("_since", "_state", "blocked", "busy", "starved")

    def __init__(self) -> None:
        self.busy = self.starved = self.blocked = 0.0
        self._state: Literal["busy", "starved", "blocked"] | None = None
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count time as busy from here on, except inside `starving()` and `blocking()`."""
        self._switch("busy")
        try:
            yield
        finally:
            self._switch(None)

    @contextmanager
    def starving(self) -> Iterator[None]:
        """Count time as waiting for input."""
        self._switch("starved")
        try:
            yield
        finally:
            self._switch("busy")

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """Count time as waiting for room in the output."""
        self._switch("blocked")
        try:
            yield
        finally:
            self._switch("busy")

    def totals(self) -> tuple[float, float, float]:
        """Return busy, starved and blocked seconds up to now."""
        busy, starved, blocked = self.busy, self.starved, self.blocked
        passed = time.perf_counter() - self._since
        if self._state == "busy":
            busy += passed
        elif self._state == "starved":
            starved += passed
        elif self._state == "blocked":
            blocked += passed
        return busy, starved, blocked

    def _switch(self, state: Literal["busy", "starved", "blocked"] | None) -> None:
        now = time.perf_counter()
        passed = now - self._since
        if self._state == "busy":
            self.busy += passed
        elif self._state == "starved":
            self.starved += passed
        elif self._state == "blocked":
            self.blocked += passed
        self._state, self._since = state, now
