"""The version of a model in use: leased for one batch at a time, so that another takes over between two batches."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from headrace.engine.channel import Cancelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from headrace.engine.task import Task
    from headrace.metrics.statistics import ModelStatistics
    from headrace.model.versions import Version

_log = logging.getLogger("headrace.model")


class Generation:
    """One version, loaded: as a task that all replicas share, or several copies."""

    def __init__(self, version: Version, tasks: Sequence[Task], *, exclusive: bool = False) -> None:
        """`exclusive` tasks answer one batch at a time; others are shared by threads."""
        self.version, self.tasks = version, list(tasks)
        self._turns = [threading.Lock() if exclusive else nullcontext() for _ in self.tasks]
        self._using = [0] * len(self.tasks)
        """Batches at work on each copy, or waiting for it."""
        self.users = 0
        """Batches that it is at work on; the lock for it is that of `Versions`."""
        self.nbytes = 0
        """What it takes, once it was measured."""

    def open(self) -> None:
        """Load all copies, side by side."""
        if len(self.tasks) == 1:
            self.tasks[0].open()
            return
        with ThreadPoolExecutor(len(self.tasks)) as pool:
            for loaded in [pool.submit(task.open) for task in self.tasks]:
                loaded.result()

    def enter(self, replica: int) -> int:
        """Choose the copy for a batch, by its number: the replica's own, or one that has less to do."""
        count = len(self.tasks)
        copy = min(range(count), key=lambda number: (self._using[number], (number - replica) % count))
        self._using[copy] += 1
        self.users += 1
        return copy

    def leave(self, copy: int) -> None:
        """Say that a batch is answered."""
        self._using[copy] -= 1
        self.users -= 1

    def turn(self, copy: int) -> AbstractContextManager[object]:
        """Return what a batch holds while a copy is at work on it."""
        return self._turns[copy]

    def kill(self) -> None:
        """End its processes at once; from any thread."""
        for task in self.tasks:
            kill: Any = getattr(task, "kill", None)
            if kill is not None:
                kill()

    def close(self) -> None:
        """Unload it; what goes wrong then is logged, since its answers have been handed over."""
        for task in self.tasks:
            try:
                task.close()
            except Exception:
                _log.warning("%s did not leave well", self.version.model_id, exc_info=True)

    def pids(self) -> list[int]:
        """Return its processes."""
        return [pid for task in self.tasks if (pid := getattr(task, "pid", None)) is not None]

    def statistics(self) -> list[ModelStatistics]:
        """Return what its copies did."""
        found = [task.statistics() for task in self.tasks]  # type: ignore[attr-defined]
        return [one for one in found if one is not None]


class Versions:
    """Leases the version in use. Whoever changes it is waited for only where the old one has to leave first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._generation: Generation | None = None
        self._version: Version | None = None
        self._rows = 0
        self._error: BaseException | None = None
        self._stopped = False

    @property
    def version(self) -> Version | None:
        """The version in use, or that was until it had to leave for the next; another object after each change."""
        return self._version

    @property
    def generation(self) -> Generation | None:
        """It, loaded; None while there is none."""
        return self._generation

    @property
    def rows(self) -> int:
        """How many rows versions were leased for so far."""
        return self._rows

    @contextmanager
    def lease(self, replica: int, rows: int) -> Iterator[Task]:
        """Use the version in use for a batch; it stays loaded until then.

        Raises:
            Cancelled: the run is being stopped.
            ModelLoadError: there is no version any more that could be loaded.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._error or self._generation)
            if self._error is not None:
                raise self._error
            if self._stopped or self._generation is None:
                raise Cancelled
            generation = self._generation
            copy = generation.enter(replica)
            self._rows += rows
        try:
            with generation.turn(copy):
                if self._stopped:  # while others had their turn
                    raise Cancelled
                yield generation.tasks[copy]
        finally:
            with self._changed:
                generation.leave(copy)
                self._changed.notify_all()

    def use(self, generation: Generation) -> int:
        """Have a version answer all batches that begin from now on; return how many rows earlier ones answer.

        Raises:
            Cancelled: the run is being stopped.
        """
        with self._changed:
            if self._stopped:
                raise Cancelled
            self._generation, self._version = generation, generation.version
            self._changed.notify_all()
            return self._rows

    def wait_until_idle(self, generation: Generation) -> None:
        """Wait until a version is at work on nothing.

        Raises:
            Cancelled: the run is being stopped.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not generation.users)
            if self._stopped:
                raise Cancelled

    def drain(self) -> Generation | None:
        """Let no batch begin until `use`, and wait for those under way; return what was in use."""
        with self._changed:
            generation, self._generation = self._generation, None
        if generation is not None:
            self.wait_until_idle(generation)
        return generation

    def fail(self, error: BaseException) -> None:
        """Say that there is nothing that could be used any more."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake whoever waits, with `Cancelled`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
