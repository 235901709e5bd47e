"""The models of a keyed stage: loaded when rows need them, and put out when others need the room."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.engine.channel import Cancelled
from headrace.engine.loads import Loads
from headrace.errors import ModelError
from headrace.metrics.statistics import merged
from headrace.model.manager import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.engine.task import Task
    from headrace.metrics.statistics import Loading, ManagerStatistics, ModelStatistics
    from headrace.model.manager import Decision, ModelManager

_log = logging.getLogger("headrace.model")

LOOK_SECS = 0.25
"""How often models at work are measured."""
LOADING_LOOK_SECS, LEAST_LOOK_SECS = 0.02, 0.001
"""The same while one is being loaded: the oftener, the less room it has left."""
LOADED_BYTES_A_SEC = 4e9
"""How fast a process may grow while it loads a model that lies in the system's cache."""


@dataclass(slots=True, eq=False)
class _Host:
    """One model in memory, or on its way there."""

    task: Task
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that drives it, where it is a process."""
    users: int = 1
    """Threads that use it, load it, or wait for their turn."""
    loading: bool = True
    ended: bool = False
    """Its load was ended, since it outgrew the room that there is."""


class Hosts:
    """Leases models to threads, as a `ModelManager` decides. Implements `Residence`.

    Nobody's load, or unload, holds up those who use other models: the lock is held for decisions only.
    """

    def __init__(
        self,
        manager: ModelManager,
        make: Callable[[str], Task],
        *,
        measure: Callable[[Task], int | None] | None = None,
        exclusive: bool = False,
    ) -> None:
        """`make` makes the task of a model, `measure` returns what it takes, None where that cannot be known.

        `exclusive` tasks answer one batch at a time; others are shared by threads.
        """
        self._manager, self._make, self._measure, self._exclusive = manager, make, measure, exclusive
        self._changed = threading.Condition()
        self._hosts: dict[str, _Host] = {}
        self._refused: dict[str, ModelError] = {}
        """Models that nobody can use, with the reason: unknown, too large, or broken."""
        self._past: ModelStatistics | None = None
        """Of models that have left."""
        self._fetching = False
        self._loads = Loads()
        self._stopped = threading.Event()

    def refuse(self, name: str, reason: ModelError) -> None:
        """Say that a model cannot be used."""
        with self._changed:
            self._refused[name] = reason

    def expect(self, name: str) -> None:
        """Say that a lease will be asked for at once: the model stays until then if it is there."""
        with self._changed:
            self._manager.expect(name)

    @contextmanager
    def lease(self, name: str, *, expected: bool = False) -> Iterator[Task]:
        """Use a model, once it is loaded; `expected` after `expect`.

        Raises:
            ModelError: it cannot be loaded, is too large, or there is none of that name.
            Cancelled: the run is being stopped.
        """
        try:
            host = self._enter(name, expected=expected)
        finally:
            if expected:
                with self._changed:
                    leave = self._manager.met(name)
                self._unload(leave)
        try:
            if self._exclusive:
                with host.turn:
                    yield host.task
            else:
                yield host.task
        finally:
            self._give_back(name, host)

    def fetch(self, names: Sequence[str], spawn: Callable[[Callable[[], None]], None]) -> None:
        """Load the first of these models that is not there, in a thread of its own, if there is room.

        None of the others named leaves for it: their rows wait.
        """
        with self._changed:
            if self._fetching or self._stopped.is_set():
                return
            absent = [name for name in names if name not in self._hosts and name not in self._refused]
            if not absent:
                return
            decision = self._manager.prefetch(absent[0], wanted=names)
            if decision.verdict is Verdict.WAIT and not decision.leave:
                return
            self._fetching = True
            if decision.verdict is Verdict.LOAD:
                self._begin(absent[0])
        spawn(lambda: self._fetch(absent[0], decision))

    def is_ready(self, name: str) -> bool:
        """Whether a model can be used at once, or never."""
        with self._changed:
            if name in self._refused:
                return True
            host = self._hosts.get(name)
            busy = self._exclusive and host is not None and host.users > 0
            return self._manager.is_ready(name) and not busy

    def has_place(self, name: str) -> bool:
        """Whether nobody would have to leave for a model, or it can never be used."""
        with self._changed:
            return name in self._refused or self._manager.has_place(name)

    def victims(self, name: str) -> tuple[str, ...]:
        """Name the models that would have to leave for one that is not there."""
        with self._changed:
            return () if name in self._refused else self._manager.victims(name)

    def want(self, names: Sequence[str]) -> None:
        """Say for which models rows have come."""
        with self._changed:
            self._manager.want(names)

    def watch(self) -> None:
        """Measure models at work, and those being loaded, until `stop` or `close`; have the budget kept."""
        assert self._measure is not None
        look_secs = LOOK_SECS
        while not self._stopped.wait(look_secs):
            look_secs = LOOK_SECS
            for name, host in list(self._hosts.items()):
                if host.loading:
                    look_secs = min(look_secs, LOADING_LOOK_SECS)
                if host.users and (nbytes := self._measure(host.task)) is not None:
                    room_bytes = self._note(name, host, nbytes)
                    if host.loading:
                        look_secs = min(look_secs, max(LEAST_LOOK_SECS, room_bytes / LOADED_BYTES_A_SEC))

    def stop(self) -> None:
        """End all models at once, and wake whoever waits with `Cancelled`; from any thread."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            hosts = list(self._hosts.values())
        for host in hosts:
            _kill(host.task)

    def close(self) -> None:
        """Unload all models; nobody uses any more, but one may still be fetched."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            fetched = [host for host in self._hosts.values() if host.loading]
        for host in fetched:
            _kill(host.task)
        with self._changed:
            self._changed.wait_for(lambda: not self._fetching)
        for name, host in list(self._hosts.items()):
            _close(name, host.task)

    def tasks(self) -> list[Task]:
        """Return what is in memory."""
        return [host.task for host in list(self._hosts.values())]

    def model_statistics(self) -> ModelStatistics | None:
        """Return what all models did, those too that have left."""
        found = [self._past, *(_statistics(task) for task in self.tasks())]
        known = [one for one in found if one is not None]
        return merged(known) if known else None

    def loading(self) -> tuple[Loading, ...]:
        """Return which models are being loaded."""
        return self._loads.statistics()

    def statistics(self) -> ManagerStatistics:
        """Return who is there, and what happened so far."""
        with self._changed:
            return self._manager.statistics()

    # -- in and out ------------------------------------------------------------------------------------------------

    def _enter(self, name: str, *, expected: bool = False) -> _Host:
        while True:
            with self._changed:
                if self._stopped.is_set():
                    raise Cancelled
                if name in self._refused:
                    raise self._refused[name]
                decision = self._ask(name, expected=expected)
                if decision.verdict is Verdict.LEASED:
                    host = self._hosts[name]
                    host.users += 1
                    return host
                if decision.verdict is Verdict.LOAD:
                    self._begin(name)
                elif not decision.leave:
                    self._changed.wait()
                    continue
            if decision.verdict is Verdict.WAIT:
                self._unload(decision.leave)
            elif self._load(name, lease=True):
                return self._hosts[name]

    def _ask(self, name: str, *, expected: bool) -> Decision:
        try:
            return self._manager.ask(name, expected=expected)
        except ModelError as error:
            self._refused[name] = error
            raise

    def _begin(self, name: str) -> None:
        """Make a model's task; under the lock, so that whoever stops the run finds it."""
        self._hosts[name] = _Host(self._make(name))

    def _load(self, name: str, *, lease: bool) -> bool:
        """Load a model; say whether it is there, or its load was ended for want of room."""
        host = self._hosts[name]
        try:
            with self._loads.noted(name):
                host.task.open()
            nbytes = None if self._measure is None else self._measure(host.task)
        except BaseException as error:
            self._abandon(name, host, error)
            if host.ended and not self._stopped.is_set():
                return False
            raise
        with self._changed:
            host.loading = False
            if not host.ended:
                leave = self._manager.loaded(name, nbytes, lease=lease)
                if not lease:
                    host.users -= 1
                self._changed.notify_all()
        if host.ended:  # at the last moment
            self._abandon(name, host, None)
            return False
        self._unload(leave)
        return True

    def _abandon(self, name: str, host: _Host, error: BaseException | None) -> None:
        with suppress(Exception):
            host.task.close()
        with self._changed:
            del self._hosts[name]
            self._manager.failed(name)
            if isinstance(error, ModelError):
                self._refused[name] = error
            self._changed.notify_all()

    def _give_back(self, name: str, host: _Host) -> None:
        with self._changed:
            host.users -= 1
            leave = self._manager.release(name)
            self._changed.notify_all()
        self._unload(leave)

    def _unload(self, names: Sequence[str]) -> None:
        for name in names:
            host = self._hosts[name]
            _close(name, host.task)
            with self._changed:
                del self._hosts[name]
                if (done := _statistics(host.task)) is not None:
                    self._past = done if self._past is None else merged([self._past, done])
                self._manager.left(name)
                self._changed.notify_all()

    def _fetch(self, name: str, decision: Decision) -> None:
        try:
            if decision.verdict is Verdict.LOAD:
                self._load(name, lease=False)
                return
            self._unload(decision.leave)
            self._give_back(name, self._enter(name))
        except Exception:
            pass  # whoever needs the model meets it again, and tells it
        finally:
            with self._changed:
                self._fetching = False
                self._changed.notify_all()

    def _note(self, name: str, host: _Host, nbytes: int) -> int:
        """Act on what a model takes now; return what is left for it to grow by."""
        with self._changed:
            if self._hosts.get(name) is not host or not host.users or host.ended:
                return 0
            leave = self._manager.measured(name, nbytes)
            room_bytes = self._manager.room_bytes(name, nbytes)
            if name in leave:
                host.ended = True
        if host.ended:
            _kill(host.task)
        self._unload([one for one in leave if one != name])
        return room_bytes


def _close(name: str, task: Task) -> None:
    """Unload a model. What goes wrong then is logged: its answers have been handed over, and others need the room."""
    try:
        task.close()
    except Exception:
        _log.warning("model %s did not leave well", name, exc_info=True)


def _kill(task: Task) -> None:
    kill: Any = getattr(task, "kill", None)
    if kill is not None:
        kill()


def _statistics(task: Task) -> ModelStatistics | None:
    found: ModelStatistics | None = task.statistics()  # type: ignore[attr-defined]
    return found
