"""The cores that a model's threads may have."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def given_threads(asked: int | None = None) -> int:
    """Return how many threads a model may start: those asked for, else this process's share of the cores.

    A worker's share, or the user's own wish, stands in OMP_NUM_THREADS, which not every framework reads by itself.

    >>> given_threads(3)
    3
    """
    if asked is not None:
        return asked
    share = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(share), available_cores()) if share.isdigit() and int(share) else available_cores()
