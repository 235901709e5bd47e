"""Rows that leave in the order in which they came, and whose weights add up."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.model.batch import Batch, Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.model.bounds import Bounds


class Line:
    """A queue of runs of rows; see `Window` for the other way to wait.

    >>> from headrace.model.bounds import Bounds
    >>> line = Line()
    >>> line.add(7, 6, 0.0)
    >>> line.cut(Bounds(target=4.0)).pieces, line.rows
    ([Piece(source=7, rows=range(0, 4))], 2)
    """

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self.rows = 0
        self.weight = 0.0

    @property
    def sources(self) -> int:
        """How many runs wait."""
        return len(self._runs)

    @property
    def has_room(self) -> bool:
        """Whether more rows would make for better batches: not here, where a batch is the first rows."""
        return False

    @property
    def first_arrival(self) -> float:
        """When the oldest row came."""
        return self._runs[0].arrived

    def add(self, source: int, rows: int, now: float, weights: NDArray[Any] | None = None) -> None:
        """Append rows."""
        run = Run(source, rows, now, weights)
        self._runs.append(run)
        self.rows += rows
        self.weight += run.weight

    def cut(self, bounds: Bounds) -> Batch:
        """Take the first rows, as many as the bounds say."""
        pieces: list[Piece] = []
        rows, weight = 0, 0.0
        while self._runs:
            run = self._runs[0]
            wanted = max(run.rows_within(bounds.target - weight), bounds.min_rows - rows)
            allowed = min(run.rows_within(bounds.most - weight), bounds.max_rows - rows)
            count = int(min(wanted, allowed, run.count))
            if rows == 0:
                count = max(count, 1)  # a row heavier than any bound still has to go
            if count <= 0:
                break
            whole = count == run.count
            weight += run.weight_of(count)
            rows += count
            pieces.append(Piece(run.source, run.take(count)))
            if not whole:
                break
            self._runs.popleft()
        self.rows -= rows
        self.weight = self.weight - weight if self._runs else 0.0
        return Batch(pieces=pieces, rows=rows, weight=weight, real_weight=weight)


class Run:
    """What is left of the rows that came together."""

    __slots__ = ("_cumulated", "arrived", "count", "first", "source")

    def __init__(self, source: int, count: int, arrived: float, weights: NDArray[Any] | None) -> None:
        self.source, self.first, self.count, self.arrived = source, 0, count, arrived
        # Entry i: weight of the first i rows.
        self._cumulated = None if weights is None else np.concatenate([[0.0], np.cumsum(weights, dtype=float)])

    @property
    def weight(self) -> float:
        return self.weight_of(self.count)

    def weight_of(self, count: int) -> float:
        """Weight of the next `count` rows."""
        if self._cumulated is None:
            return float(count)
        return float(self._cumulated[self.first + count] - self._cumulated[self.first])

    def rows_within(self, weight: float) -> float:
        """How many of the next rows together weigh no more than `weight`."""
        if self._cumulated is None or weight == inf:
            return max(0.0, weight // 1 if weight < inf else inf)
        limit = self._cumulated[self.first] + weight
        return max(0, int(np.searchsorted(self._cumulated, limit, side="right")) - 1 - self.first)

    def take(self, count: int) -> range:
        taken = range(self.first, self.first + count)
        self.first += count
        self.count -= count
        return taken
