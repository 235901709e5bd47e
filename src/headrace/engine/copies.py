"""Copies of one model, for all stages that use it: loaded when needed, put out when nobody has for long."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.metrics.statistics import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from headrace.engine.task import Task
    from headrace.metrics.statistics import ModelStatistics

_log = logging.getLogger("headrace.engine")


@dataclass(slots=True, eq=False)
class _Copy:
    """One copy, in memory or not."""

    number: int
    task: Task | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that drives it, where it is a process."""
    change: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is loaded or put out."""
    users: int = 0
    """Threads that use it, or wait for it."""
    used_at: float = 0.0


class Copies:
    """Leases copies of a model to threads: one that is idle if there is any, else the one with the fewest users."""

    def __init__(
        self,
        make: Callable[[int], Task],
        copies: int,
        *,
        exclusive: bool,
        idle_secs: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make` makes the task of a copy, by its number.

        `exclusive` tasks answer one batch at a time; others are shared by threads. A copy that nobody has used for
        `idle_secs` is put out, and loaded again when it is needed.
        """
        self._make, self._exclusive, self._idle_secs, self._clock = make, exclusive, idle_secs, clock
        self._copies = [_Copy(number) for number in range(copies)]
        self._lock = threading.Lock()
        self._stages = 0
        self._ended = threading.Event()
        self._past: ModelStatistics | None = None
        """Of copies that were put out."""

    def join(self) -> bool:
        """Say that a stage uses these copies until it leaves; return whether it is the first."""
        with self._lock:
            self._stages += 1
            first = self._stages == 1
        if first and self._idle_secs is not None:
            threading.Thread(target=self._watch, name="headrace-idle-models", daemon=True).start()
        return first

    def leave(self) -> None:
        """Say that a stage needs them no more; with the last they go."""
        with self._lock:
            self._stages -= 1
            if self._stages:
                return
        self._ended.set()
        with ExitStack() as closing:  # all of them, also where one raises
            for copy in self._copies:
                if copy.task is not None:
                    closing.callback(self._closed, copy)

    @contextmanager
    def lease(self, loading: AbstractContextManager[None] | None = None) -> Iterator[Task]:
        """Use a copy, once it is loaded; `loading` stands around the load, if there has to be one.

        Raises:
            ModelError: it cannot be loaded.
        """
        with self._lock:
            copy = min(self._copies, key=lambda one: (one.users, one.task is None))
            copy.users += 1
        try:
            with copy.turn if self._exclusive else nullcontext():
                yield self._loaded(copy, loading or nullcontext())
        finally:
            with self._lock:
                copy.users -= 1
                copy.used_at = self._clock()

    def put_out_idle(self) -> None:
        """Put out what nobody has used for long."""
        assert self._idle_secs is not None
        with self._lock:
            before = self._clock() - self._idle_secs
            idle = [one for one in self._copies if one.task is not None and not one.users and one.used_at <= before]
            for copy in idle:
                copy.users += 1  # whoever needs it now waits until it is gone
        for copy in idle:
            try:
                self._put_out(copy)
            except HeadraceError as error:
                # Its answers have been handed over; a model that leaves badly must not keep others in memory.
                _log.warning("an idle copy of a model did not leave in good order: %s", error)
            finally:
                with self._lock:
                    copy.users -= 1

    def tasks(self) -> list[Task]:
        """Return the copies that are in memory."""
        return [copy.task for copy in self._copies if copy.task is not None]

    def statistics(self) -> ModelStatistics | None:
        """Return what all copies did, those too that were put out."""
        known = [one for one in (self._past, *map(_statistics, self.tasks())) if one is not None]
        return merged(known) if known else None

    def _loaded(self, copy: _Copy, loading: AbstractContextManager[None]) -> Task:
        with copy.change:
            if copy.task is None:
                task = self._make(copy.number)
                try:
                    with loading:
                        task.open()
                except BaseException:
                    task.close()
                    raise
                copy.task = task
            return copy.task

    def _closed(self, copy: _Copy) -> None:
        with copy.change:
            if copy.task is not None:
                copy.task.close()

    def _put_out(self, copy: _Copy) -> None:
        with copy.change:
            task, copy.task = copy.task, None
            if task is None:
                return
            task.close()
            done = _statistics(task)
        with self._lock:
            self._past = done if self._past is None else merged([one for one in (self._past, done) if one is not None])

    def _watch(self) -> None:
        assert self._idle_secs is not None
        while not self._ended.wait(self._idle_secs / 4):
            self.put_out_idle()


def _statistics(task: Task) -> ModelStatistics | None:
    found: ModelStatistics | None = task.statistics()  # type: ignore[attr-defined]
    return found
