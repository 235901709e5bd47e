"""Copies of segment files in a store, for a run on another machine."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from headrace.engine.commit.crash import crash_point
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.engine.commit.segments import Segments
    from headrace.sinks.store import Store

PAUSE_SECS = 2.0
FILES_TO_DOUBLE = 32


def pause_secs(files: int) -> float:
    """Return how long to wait before the next copy, when so many files wait for their part already.

    The more waits, the less a little more is worth a request: a day's waiting makes some 300 files.

    >>> pause_secs(0), pause_secs(32), pause_secs(64)
    (2.0, 4.0, 8.0)
    """
    return float(PAUSE_SECS * 2 ** (files / FILES_TO_DOUBLE))


class SegmentMirror:
    """Puts segment files into a store as they fill, and removes the copies of files that are gone; one thread."""

    def __init__(
        self,
        store: Store,
        folder: str,
        segments: Segments,
        *,
        mutex: threading.RLock,
        before: Callable[[], None],
        fail: Callable[[HeadraceError], None],
    ) -> None:
        """`mutex` guards the segments, `before` makes durable what the rows rest on, `fail` hears what goes wrong."""
        self._store, self._folder, self._segments = store, folder, segments
        self._mutex, self._before, self._fail = mutex, before, fail
        self._copied: set[str] = set(segments.names)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-mirror", daemon=True)

    def start(self) -> None:
        """Begin to copy now and then."""
        self._thread.start()

    def stop(self) -> None:
        """Copy no more; returns when a copy in work is done."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def sync(self) -> None:
        """Copy what is finished and not copied yet.

        Raises:
            SinkError: the store refuses.
        """
        with self._mutex:
            paths = [path for path in self._segments.roll() if os.path.basename(path) not in self._copied]
            files = [(os.path.basename(path), open(path, "rb")) for path in paths]  # noqa: SIM115 - they may be removed
        if files:
            self._before()
        for name, file in files:
            with file:
                self._store.put(f"{self._folder}/{name}", file.read())
            self._copied.add(name)
            crash_point("segment.copied")
        with self._mutex:
            gone = self._copied.difference(self._segments.names)
        self._remove(gone)

    def _remove(self, names: Iterable[str]) -> None:
        listed = list(names)
        self._store.remove(f"{self._folder}/{name}" for name in listed)
        self._copied.difference_update(listed)

    def _run(self) -> None:
        while not self._stopped.wait(pause_secs(len(self._copied))):
            try:
                self.sync()
            except HeadraceError as error:
                self._fail(error)
                return
