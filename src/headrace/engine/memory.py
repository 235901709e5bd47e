"""Watching the memory of this process and its workers: near the limit the run takes in less, instead of growing."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECS = 0.05
"""At a gigabyte a second memory grows by a twentieth of one between two looks."""
PRESSED_SHARE = 0.8
RELIEVED_SHARE = 0.7
TRIM_SECS = 1.0
"""How often freed memory is given back to the system while it is short."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""What `mallopt` calls its settings, in glibc's malloc.h."""
KEPT_BYTES = 32 * 2**20
"""What freed memory an arena keeps, and how large a piece may be that comes out of one: the most that glibc allows."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Looks at the memory in use now and then, and tells everybody who asked when it gets short or is enough again."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        used: Callable[[list[int]], int] | None = None,
        of_files: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`used(pids)` measures this process with its workers, `of_files()` what of this process are pages of files."""
        self._limit_bytes = limit_bytes
        self._measure = used or memory_of_tree
        self._of_files = of_files or file_pages
        self._of_files_before = self._of_files()
        self._mapped_bytes = 0
        self._clock = clock
        self._workers: Callable[[], list[int]] = list
        self._listeners: list[Callable[[bool], None]] = []
        self._pressed_at: float | None = None
        self._pressed_secs = 0.0
        self._trimmed_at = -TRIM_SECS
        self._peak_bytes = 0
        self._ended = threading.Event()

    def start(
        self, workers: Callable[[], list[int]], listeners: list[Callable[[bool], None]], *, mapped_bytes: int = 0
    ) -> None:
        """Begin to look, in a thread of its own; `workers` finds the process ids of workers.

        Files of `mapped_bytes`, which this process has mapped since, do not count: the system takes their pages back
        when it needs them.
        """
        self._workers, self._listeners, self._mapped_bytes = workers, listeners, mapped_bytes
        threading.Thread(target=self._run, name="headrace-memory", daemon=True).start()

    def stop(self) -> None:
        """Look once more, and end; whoever waits for memory waits no longer."""
        self._ended.set()
        self.look()
        self._press(False)

    @property
    def peak_bytes(self) -> int:
        """The most that was in use; of this process alone it is the system's own count, which misses nothing."""
        if self._mapped_bytes:
            return self._peak_bytes  # the system counts what is mapped as well
        return max(self._peak_bytes, own_peak_bytes())

    def free_bytes(self) -> int:
        """Measure how much of the limit is not in use."""
        return self._limit_bytes - self._used(self._workers())

    @property
    def pressed_secs(self) -> float:
        """How long memory was short."""
        since = self._pressed_at
        return self._pressed_secs + (self._clock() - since if since is not None else 0.0)

    def look(self) -> None:
        """Measure, and decide."""
        pids = self._workers()
        used = self._used(pids)
        if used > self._limit_bytes * RELIEVED_SHARE and self._clock() - self._trimmed_at >= TRIM_SECS:
            self._trimmed_at = self._clock()
            give_back()
            used = self._used(pids)
        self._peak_bytes = max(self._peak_bytes, used)
        if used > self._limit_bytes * PRESSED_SHARE:
            self._press(True)
        elif used < self._limit_bytes * RELIEVED_SHARE:
            self._press(False)

    def recover(self, timeout_secs: float) -> None:
        """Wait until half of the limit is free again, if that is soon: a giant row has just been sent on."""
        deadline = self._clock() + timeout_secs
        give_back()
        while self._used(self._workers()) > self._limit_bytes / 2 and self._clock() < deadline:
            if self._ended.wait(TICK_SECS):
                return
            give_back()

    def _used(self, pids: list[int]) -> int:
        used = self._measure(pids)
        if self._mapped_bytes:
            used -= min(self._mapped_bytes, max(0, self._of_files() - self._of_files_before))
        return used

    def _run(self) -> None:
        while not self._ended.wait(TICK_SECS):
            self.look()

    def _press(self, pressed: bool) -> None:
        if pressed == (self._pressed_at is not None):
            return
        self._pressed_secs, self._pressed_at = self.pressed_secs, self._clock() if pressed else None
        for tell in self._listeners:
            tell(pressed)


def memory_of_tree(workers: list[int]) -> int:
    """Return the bytes of this process and of its workers, without the pages of files that workers share with it."""
    return _resident(os.getpid(), shared=True) + sum(_resident(pid, shared=False) for pid in workers)


def file_pages() -> int:
    """Return the bytes of this process that are pages of files; 0 where nobody tells."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("RssFile:"):
                return 1024 * int(line.split()[1])
    return 0


def proportional_bytes(pid: int) -> int:
    """Return the bytes of one process, pages that it shares divided among those who share them; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0 if sys.platform == "linux" else _resident(pid, shared=True)


def share_arenas(cores: int) -> None:
    """Have the threads of this process get memory from an arena for every two cores; the system's way is eight a core.

    Columns pass from the threads that make them to those that write them. What these free lies about in the arenas of
    those, and the more arenas there are, the more lies about.
    """
    _mallopt(M_ARENA_MAX, max(1, cores // 2))


def keep_freed_memory() -> None:
    """Have this process use memory again that it has freed, rather than give it back at once.

    The arrays that a model makes of a batch are freed before the next batch. glibc gives what is beyond twice the
    largest of them back to the system, which then has to clear it again: a small network that computes small batches
    took half as long again.
    """
    _mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)
    _mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)


def _mallopt(setting: int, value: int) -> None:
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return  # the user knows better
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).mallopt(setting, value)


def give_back() -> None:
    """Give freed memory back to the system: allocators keep it for later."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _resident(pid: int, *, shared: bool) -> int:
    if sys.platform != "linux":
        import psutil

        with suppress(psutil.Error):
            return int(psutil.Process(pid).memory_info().rss)
        return 0
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, of_files = map(int, file.read().split()[:3])
    except (OSError, ValueError):  # it has ended
        return 0
    return (resident if shared else resident - of_files) * _PAGE_BYTES


def own_peak_bytes() -> int:
    """Return the most memory that this process has had.

    Linux hands a process `ru_maxrss` of the one that started it, which may be a notebook of many gigabytes.
    """
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
