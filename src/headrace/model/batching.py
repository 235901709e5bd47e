"""Batching: which rows go into the model together, decided without threads and without a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.model.cost import CostModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.plan.nodes import BatchLimits

LINGER_SECS = 0.1
"""Without `max_batch_duration_secs`, rows wait for others until none has come for this long."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` rows of one source, from its row `first` on."""

    source: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStatistics:
    """What waits in a batcher now, and the size it aims at."""

    waiting_rows: int
    waiting_sources: int
    target_rows: int


class Batcher:
    """Cuts rows that arrive in runs into batches, within `BatchLimits` and near the cost model's target.

    Rows leave in the order in which they came. Not locked: the engine calls it under its own lock, and passes the time.

    >>> from headrace.plan.nodes import BatchLimits
    >>> batcher = Batcher(BatchLimits(max_batch_size=4))
    >>> batcher.add(7, 6, now=0.0)
    >>> batcher.take(0.0)
    [Piece(source=7, first=0, count=4)]
    >>> batcher.take(0.0), batcher.wait_until(0.0), batcher.take(0.1)
    (None, 0.1, [Piece(source=7, first=4, count=2)])
    """

    def __init__(self, limits: BatchLimits, *, cost: CostModel | None = None, max_weight: float | None = None) -> None:
        self._min_rows = max(1, limits.min_batch_size)
        self._max_rows: float = inf if limits.max_batch_size is None else limits.max_batch_size
        self._max_wait_secs = limits.max_batch_duration_secs
        self._max_weight = inf if max_weight is None else max_weight
        self._cost = CostModel() if cost is None else cost
        self._runs: deque[_Run] = deque()
        self._rows = 0
        self._weight = 0.0
        self._last_arrival = -inf

    def add(self, source: int, rows: int, now: float, weights: NDArray[Any] | None = None) -> None:
        """Append `rows` rows of a source (the caller's id, added once); each weighs 1 or as `weights` says."""
        if rows <= 0:
            return
        run = _Run(source, rows, now, weights)
        self._runs.append(run)
        self._rows += rows
        self._weight += run.weight
        self._last_arrival = now

    def take(self, now: float, *, flush: bool = False) -> list[Piece] | None:
        """Return the next batch, or None where it is better to wait for more rows.

        Pass `flush=True` when no more rows can come: at the end, and also when the buffers in front are full.
        """
        if not self._rows or not (flush or self._full() or self._waited_until() <= now):
            return None
        pieces: list[Piece] = []
        rows, weight = 0, 0.0
        target = self._target_weight()
        while self._runs:
            run = self._runs[0]
            wanted = max(run.rows_within(target - weight), self._min_rows - rows)
            allowed = min(run.rows_within(self._max_weight - weight), self._max_rows - rows)
            count = int(min(wanted, allowed, run.count))
            if rows == 0:
                count = max(count, 1)  # a row heavier than any bound still has to go
            if count <= 0:
                break
            whole = count == run.count
            weight += run.weight_of(count)
            rows += count
            pieces.append(run.take(count))
            if not whole:
                break
            self._runs.popleft()
        self._rows -= rows
        self._weight = self._weight - weight if self._runs else 0.0
        return pieces

    def wait_until(self, now: float) -> float | None:
        """Return when `take` will have a batch if nothing more arrives; None if only more rows or a flush can help."""
        if not self._rows:
            return None
        if self._full():
            return now
        due = self._waited_until()
        return None if due == inf else max(now, due)

    def observe(self, rows: int, seconds: float, weight: float | None = None) -> None:
        """Tell what a batch has cost, for the size of those to come."""
        self._cost.observe(rows if weight is None else weight, seconds)

    @property
    def waiting_rows(self) -> int:
        """Rows added and not yet taken."""
        return self._rows

    @property
    def target_rows(self) -> int:
        """Rows that the next full batch will have, at the mean weight of those waiting."""
        rows = self._target_weight() / self._row_weight()
        return int(min(max(rows, self._min_rows), self._max_rows))

    def statistics(self) -> BatcherStatistics:
        """Return what waits now."""
        return BatcherStatistics(waiting_rows=self._rows, waiting_sources=len(self._runs), target_rows=self.target_rows)

    def _full(self) -> bool:
        if self._rows >= self._max_rows or self._weight >= self._max_weight:
            return True
        return self._rows >= self._min_rows and self._weight >= self._target_weight()

    def _waited_until(self) -> float:
        if self._max_wait_secs is not None:
            return self._runs[0].arrived + self._max_wait_secs
        return self._last_arrival + LINGER_SECS if self._rows >= self._min_rows else inf

    def _target_weight(self) -> float:
        return min(self._cost.target(self._row_weight()), self._max_weight)

    def _row_weight(self) -> float:
        return self._weight / self._rows if self._rows and self._weight > 0 else 1.0


class _Run:
    """What is left of one `add`."""

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

    def take(self, count: int) -> Piece:
        piece = Piece(self.source, self.first, count)
        self.first += count
        self.count -= count
        return piece
