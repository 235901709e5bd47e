"""Where a stage's time goes: busy, starved (waiting for input) or blocked (waiting for room in the output)."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.engine.task import Task


class StageClock:
    """Adds up what a stage's replicas do with their time. Each replica has its own; readers sum over them."""

    __slots__ = ("_since", "_state", "blocked", "busy", "moves", "starved", "task", "thread_id")

    def __init__(self) -> None:
        self.busy = self.starved = self.blocked = 0.0
        self._state: Literal["busy", "starved", "blocked"] | None = None
        self._since = 0.0
        self.moves = 0
        """Blocks taken in and sent on."""
        self.thread_id = 0
        self.task: Task | None = None
        """What the replica runs; it may tell of progress while the replica is busy."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count time as busy from here on, except inside `starving()` and `blocking()`."""
        self.thread_id = threading.get_ident()
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

    @property
    def state(self) -> Literal["busy", "starved", "blocked"] | None:
        """What the replica does now; None where it has ended, or has not begun."""
        return self._state

    def progress(self) -> object:
        """Return what will be different when the replica has made any progress."""
        if self._state != "busy":
            return self.moves  # one that waits may look up now and then, which is no progress
        progress = getattr(self.task, "progress", None)
        return self._since, None if progress is None else progress()

    def doing(self) -> str:
        """Say what the replica does, for people."""
        if self._state == "starved":
            return "waits for input"
        if self._state == "blocked":
            return "waits for room in its output"
        doing = getattr(self.task, "doing", None)
        if doing is not None:
            return str(doing())
        frame = sys._current_frames().get(self.thread_id)
        where = (
            "" if frame is None else f" in {frame.f_code.co_filename}, line {frame.f_lineno}, {frame.f_code.co_name}"
        )
        return f"is at work{where}"

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
