"""Rows that leave with those of like length, since the rows of a batch are padded to the longest of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.model.batch import Batch, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from headrace.model.bounds import Bounds

_FIELDS = np.dtype([("length", "f8"), ("came", "i8"), ("arrived", "f8"), ("source", "i8"), ("row", "i8")])


class Window:
    """Keeps the oldest rows sorted by length, at most `max_rows` of them; those that came later wait behind.

    Each batch has the oldest row of all and those that are most like it. So no row waits for more batches than there
    were rows before it, and where the window is large, neighbours differ by little.

    >>> from headrace.model.bounds import Bounds
    >>> window = Window(max_rows=100)
    >>> window.add(7, 5, 0.0, np.array([3, 90, 4, 88, 3]))
    >>> batch = window.cut(Bounds(target=200.0, overhead=10.0))
    >>> batch.pieces, batch.weight, batch.real_weight
    ([Piece(source=7, rows=array([0, 2, 4]))], 12.0, 10.0)
    """

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._sorted = np.empty(0, dtype=_FIELDS)
        self._behind: deque[NDArray[Any]] = deque()
        self._came = 0
        self.rows = 0
        self.weight = 0.0

    @property
    def sources(self) -> int:
        """How many sources the rows are of."""
        return len(np.unique(self._sorted["source"])) + len(self._behind)

    @property
    def has_room(self) -> bool:
        """Whether more rows would make for better batches."""
        return self.rows < self._max_rows

    @property
    def first_arrival(self) -> float:
        """When the oldest row came."""
        return float(self._sorted["arrived"][np.argmin(self._sorted["came"])])

    def add(self, source: int, rows: int, now: float, weights: NDArray[Any] | None = None) -> None:
        """Take rows in; without weights each has length 1."""
        new = np.empty(rows, dtype=_FIELDS)
        new["length"] = 1.0 if weights is None else weights
        new["came"] = np.arange(self._came, self._came + rows)
        new["arrived"], new["source"], new["row"] = now, source, np.arange(rows)
        self._came += rows
        self.rows += rows
        self.weight += float(new["length"].sum())
        self._behind.append(new)
        self._refill()

    def cut(self, bounds: Bounds) -> Batch:
        """Take the oldest row and those like it."""
        lengths = self._sorted["length"]
        first, last = alike(lengths, int(np.argmin(self._sorted["came"])), bounds)
        taken = self._sorted[first:last]
        real = float(taken["length"].sum())
        batch = Batch(
            pieces=list(_pieces(taken)),
            rows=last - first,
            weight=(last - first) * float(lengths[last - 1]),
            real_weight=real,
        )
        self._sorted = np.concatenate([self._sorted[:first], self._sorted[last:]])
        self.rows -= batch.rows
        self.weight = self.weight - real if self.rows else 0.0
        self._refill()
        return batch

    def _refill(self) -> None:
        new = []
        room = self._max_rows - len(self._sorted)
        while room > 0 and self._behind:
            run = self._behind.popleft()
            if len(run) > room:
                self._behind.appendleft(run[room:])
            new.append(run[:room])
            room -= len(new[-1])
        if new:
            fresh = np.concatenate(new)
            fresh = fresh[np.argsort(fresh["length"], kind="stable")]
            places = np.searchsorted(self._sorted["length"], fresh["length"], side="right")
            self._sorted = np.insert(self._sorted, places, fresh)


def alike(lengths: NDArray[np.float64], row: int, bounds: Bounds) -> tuple[int, int]:
    """Return the range of ascending `lengths` around `row` that wastes least for each of its rows.

    Waste is the overhead of a batch, and its padding. Ranges are within the bounds; one with fewer than `min_rows` is
    taken only where there is no other.

    >>> from headrace.model.bounds import Bounds
    >>> alike(np.array([1.0, 10.0, 10.0, 11.0, 50.0]), 2, Bounds(target=100.0, overhead=5.0))
    (1, 4)
    """
    before = np.concatenate([[0.0], np.cumsum(lengths)])
    chosen, best = (row, row + 1), (inf, inf, 0)
    for last in _ends(lengths, row, bounds):
        longest = float(lengths[last])
        lowest = max(0, last + 1 - _most_rows(longest, bounds, len(lengths)))
        highest = max(lowest, min(row, last + 1 - bounds.min_rows))
        firsts = np.arange(lowest, highest + 1)
        rows = last + 1 - firsts
        waste = (bounds.overhead + rows * longest - (before[last + 1] - before[firsts])) / rows
        at = int(np.argmin(waste))
        found = (float(max(0, bounds.min_rows - int(rows[at]))), float(waste[at]), -int(rows[at]))
        if found < best:
            chosen, best = (int(firsts[at]), last + 1), found
    return chosen


def _ends(lengths: NDArray[np.float64], row: int, bounds: Bounds) -> list[int]:
    """Return places where a range around `row` may end: near ones, farther ones by powers of two, the last."""
    last = row + bisect_right(range(len(lengths) - row), 0, key=lambda more: _too_many(lengths, row, more, bounds)) - 1
    steps = (0, *(1 << i for i in range((last - row).bit_length())))
    return sorted({row + step for step in steps} | {last, min(last, max(row, bounds.min_rows - 1))})


def _too_many(lengths: NDArray[np.float64], row: int, more: int, bounds: Bounds) -> bool:
    return more + 1 > _most_rows(float(lengths[row + more]), bounds, len(lengths))


def _most_rows(longest: float, bounds: Bounds, waiting: int) -> int:
    """Return how many rows a batch may have whose longest row is as long as this; the longer, the fewer."""
    weight = min(max(bounds.target, bounds.min_rows * longest), bounds.most)
    within = inf if longest <= 0 or weight == inf else weight // longest
    return int(max(1, min(within, bounds.max_rows, waiting)))


def _pieces(taken: NDArray[Any]) -> Iterator[Piece]:
    taken = taken[np.argsort(taken["came"])]
    sources, starts = np.unique(taken["source"], return_index=True)
    for source, rows in zip(sources.tolist(), np.split(taken["row"], starts[1:]), strict=True):
        yield Piece(source, np.ascontiguousarray(rows))
