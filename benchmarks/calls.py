"""Which rows a handler was called for, and when: written by the programs that chaos kills, judged afterwards.

A file a process, appended to before and after each call, so that no kill takes what has been written. Times are of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

CALL = np.dtype([("row", "<i8"), ("began", "<f8"), ("ended", "<f8")])
"""One row in one call; `ended` is NaN in the entry made before the call."""


@contextmanager
def noted(folder: str, rows: Any) -> Iterator[None]:
    """Note that a call for `rows` begins, and that it has been answered; one that raises has been answered too."""
    entries = np.empty(len(rows), dtype=CALL)
    entries["row"], entries["began"], entries["ended"] = rows, time.monotonic(), np.nan
    path = os.path.join(folder, f"{os.getpid()}.calls")
    _append(path, entries)
    try:
        yield
    finally:
        entries["ended"] = time.monotonic()
        _append(path, entries)


def _append(path: str, entries: NDArray[Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, entries.tobytes())
    finally:
        os.close(descriptor)


def processes(folder: Path) -> set[int]:
    """Return the ids of the processes that have called a handler."""
    return {int(path.stem) for path in folder.glob("*.calls")}


def nbytes(folder: Path) -> int:
    """Return how much has been written: when it grows, a handler is at work."""
    return sum(path.stat().st_size for path in folder.glob("*.calls"))


def read_calls(folder: Path) -> NDArray[Any]:
    """Return all calls, an entry a row, ordered by row and time; those that a kill cut short have no end."""
    found = [np.empty(0, dtype=CALL)]
    for path in sorted(folder.glob("*.calls")):
        data = path.read_bytes()
        found.append(np.frombuffer(data, dtype=CALL, count=len(data) // CALL.itemsize))
    entries = np.sort(np.concatenate(found), order=["row", "began", "ended"])  # NaN sorts last
    same = (entries["row"][1:] == entries["row"][:-1]) & (entries["began"][1:] == entries["began"][:-1])
    return entries[~np.concatenate([[False], same])] if len(entries) else entries


def done_again(calls: NDArray[Any]) -> NDArray[np.intp]:
    """Return the entries that follow another of the same row."""
    return np.flatnonzero(calls["row"][1:] == calls["row"][:-1]) + 1


def unexcused(
    calls: NDArray[Any],
    deaths: Sequence[tuple[float, float]],
    *,
    patience_secs: float,
    safe_at: Mapping[int, float],
) -> list[int]:
    """Return the rows that were done again although they were not in flight when something was killed.

    A death is the moment of a kill and the end of the run that it hit. Being done again is excused by one that lies
    between the two calls, unless the first call had been answered more than `patience_secs` before, or the row was
    in all its outputs by then (`safe_at`).

    >>> calls = np.array([(7, 1.0, 1.1), (7, 3.0, 3.1)], dtype=CALL)
    >>> unexcused(calls, [(1.5, 2.0)], patience_secs=1.0, safe_at={})
    []
    >>> unexcused(calls, [(2.5, 2.6)], patience_secs=1.0, safe_at={}), unexcused(calls, [], patience_secs=1, safe_at={})
    ([7], [7])
    >>> unexcused(calls, [(1.5, 2.0)], patience_secs=1.0, safe_at={7: 1.2})
    [7]
    """
    found = []
    for at in done_again(calls):
        before, again = calls[at - 1], calls[at]
        row = int(again["row"])
        excused = any(
            killed <= again["began"] and before["began"] <= ended and not before["ended"] < killed - patience_secs
            for killed, ended in deaths
        )
        if not excused or safe_at.get(row, np.inf) <= again["began"]:
            found.append(row)
    return found
