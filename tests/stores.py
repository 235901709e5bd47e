"""Stores in memory that misbehave as real ones do, behind fsspec like any other."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

REQUESTS = ("ls", "info", "cat_file", "get_file", "put_file", "pipe_file", "cp_file", "rm_file", "find")
OBJECTS = "flaky"


class FlakyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Objects in memory; counts requests and lets some of them fail."""

    protocol = ("flaky", "memory")
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    counts: Counter[str] = Counter()
    faults: Callable[[str, str], str] | None = None
    """Told the request and its path; "before" fails it, "after" loses its answer."""
    lock = threading.RLock()

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in REQUESTS:
            return method

        def request(path: str, *args: Any, **kwargs: Any) -> Any:
            with FlakyFileSystem.lock:
                outermost = not getattr(_inside, "request", False)
                _inside.request = True
                try:
                    faults = FlakyFileSystem.faults if outermost else None
                    FlakyFileSystem.counts[name] += outermost
                    fault = faults(name, path) if faults is not None else ""
                    if fault == "before":
                        raise OSError(errno.EBUSY, "Please reduce your request rate.")
                    answer = method(path, *args, **kwargs)
                    if fault == "after":
                        raise TimeoutError("no answer")
                    return answer
                finally:
                    _inside.request = not outermost

        return request

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("flaky://", "memory://")))


_inside = threading.local()
fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)


class VirtualClock:
    """Time that passes while somebody sleeps, and at no other moment."""

    def __init__(self) -> None:
        self._now, self._lock = 0.0, threading.Lock()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, secs: float) -> None:
        with self._lock:
            self._now += secs


@contextmanager
def flaky_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FlakyFileSystem]]:
    """An empty store under flaky://bucket, whose clients wait no time before they ask again, but by their own clock."""
    clock = VirtualClock()
    monkeypatch.setattr("headrace.sinks.store.time", clock)
    monkeypatch.setattr("headrace.sinks.patience.Patience.pause", lambda _self, secs: clock.sleep(secs))
    FlakyFileSystem.store.clear()
    FlakyFileSystem.pseudo_dirs[:] = [""]
    FlakyFileSystem.counts.clear()
    FlakyFileSystem.faults = None
    try:
        yield FlakyFileSystem
    finally:
        FlakyFileSystem.faults = None


def objects(folder: str) -> list[str]:
    """List all objects under a folder of the store, as keys relative to it."""
    root = FlakyFileSystem._strip_protocol(folder)
    return sorted(key[len(root) + 1 :] for key in FlakyFileSystem.store if key.startswith(root + "/"))
