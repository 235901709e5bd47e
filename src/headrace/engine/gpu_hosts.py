"""The models of a keyed stage over several GPUs: each has one where it belongs, and takes turns with others there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headrace.metrics.statistics import ManagerStatistics, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from headrace.engine.hosts import Hosts
    from headrace.engine.task import Task
    from headrace.errors import ModelError
    from headrace.metrics.statistics import Loading, ModelStatistics


class GpuHosts:
    """Hosts of several GPUs with the interface of `Hosts`. A model that is met anew goes where the fewest are.

    It stays there for the run: what it takes is known there, and nobody has to look for it.
    """

    def __init__(self, hosts: Sequence[Hosts]) -> None:
        """`hosts` are one for each GPU."""
        self._hosts = tuple(hosts)
        self._homes: dict[str, int] = {}
        self._lock = threading.Lock()

    def refuse(self, name: str, reason: ModelError) -> None:
        """Say that a model cannot be used."""
        self._of(name).refuse(name, reason)

    def expect(self, name: str) -> None:
        """Say that a lease will be asked for at once."""
        self._of(name).expect(name)

    def lease(self, name: str, *, expected: bool = False) -> AbstractContextManager[Task]:
        """Use a model; see `Hosts.lease`."""
        return self._of(name).lease(name, expected=expected)

    def fetch(self, names: Sequence[str], spawn: Callable[[Callable[[], None]], None]) -> None:
        """Load on each GPU the first of these models that belongs there and is not there, if there is room."""
        for number, hosts in enumerate(self._hosts):
            hosts.fetch([name for name in names if self._number(name) == number], spawn)

    def is_ready(self, name: str) -> bool:
        """Whether a model can be used at once, or never."""
        return self._of(name).is_ready(name)

    def has_place(self, name: str) -> bool:
        """Whether nobody would have to leave for a model."""
        return self._of(name).has_place(name)

    def victims(self, name: str) -> tuple[str, ...]:
        """Name the models that would have to leave for one that is not there."""
        return self._of(name).victims(name)

    def want(self, names: Iterable[str]) -> None:
        """Say for which models rows have come."""
        for name in names:
            self._of(name).want([name])

    def watch(self) -> None:
        """Measure models at work on all GPUs."""
        threads = [threading.Thread(target=one.watch, name="headrace-models", daemon=True) for one in self._hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """End all models at once."""
        for hosts in self._hosts:
            hosts.stop()

    def close(self) -> None:
        """Unload all models."""
        for hosts in self._hosts:
            hosts.close()

    def tasks(self) -> list[Task]:
        """Return what is in memory."""
        return [task for hosts in self._hosts for task in hosts.tasks()]

    def model_statistics(self) -> ModelStatistics | None:
        """Return what all models did."""
        known = [found for hosts in self._hosts if (found := hosts.model_statistics()) is not None]
        return merged(known) if known else None

    def loading(self) -> tuple[Loading, ...]:
        """Return which models are being loaded."""
        return tuple(loading for hosts in self._hosts for loading in hosts.loading())

    def statistics(self) -> ManagerStatistics:
        """Return the figures of all GPUs added up."""
        each = [hosts.statistics() for hosts in self._hosts]
        sums: dict[str, Any] = {
            name: sum(getattr(one, name) or 0 for one in each) for name in ManagerStatistics.__dataclass_fields__
        }
        return ManagerStatistics(**sums)

    def _of(self, name: str) -> Hosts:
        return self._hosts[self._number(name)]

    def _number(self, name: str) -> int:
        with self._lock:
            if name not in self._homes:
                there = list(self._homes.values())
                self._homes[name] = min(range(len(self._hosts)), key=there.count)
            return self._homes[name]
