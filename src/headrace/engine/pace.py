"""The pace at which rows that are made one by one are handed on: slow ones soon, fast ones in whole blocks."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

HAND_ON_SECS = 0.1
"""Finished rows are handed on about this often: nobody behind can make them durable before."""


def paced(items: Iterable[T], *, clock: Callable[[], float] = time.monotonic) -> Iterator[Iterator[T]]:
    """Cut an iteration into runs that end once their items have taken `HAND_ON_SECS`; use each up before the next.

    >>> now = 0.0
    >>> def slow(items):
    ...     global now
    ...     for item in items:
    ...         now += 0.04
    ...         yield item
    >>> [list(run) for run in paced(slow("abcdef"), clock=lambda: now)]
    [['a', 'b', 'c', 'd'], ['e', 'f']]
    """
    source = iter(items)
    for first in source:
        yield _run(first, source, clock)


def _run(first: T, source: Iterator[T], clock: Callable[[], float]) -> Iterator[T]:
    began, done = clock(), 1
    yield first
    while (passed := clock() - began) < HAND_ON_SECS:
        # Looking at the clock costs as much as a cheap row: by doubling we look seldom, and yet end in time.
        in_time = done if passed <= 0 else int(done * (HAND_ON_SECS - passed) / passed)
        for item in islice(source, 1):
            yield item
            break
        else:
            return
        more = max(0, min(done, in_time) - 1)
        yield from islice(source, more)
        done += 1 + more
