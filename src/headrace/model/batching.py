"""Batching: which rows go into the model together, decided without threads and without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from headrace.model.bounds import Bounds
from headrace.model.ceiling import Ceiling
from headrace.model.cost import CostModel
from headrace.model.learnt import Learnt
from headrace.model.line import Line
from headrace.model.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.model.batch import Batch
    from headrace.plan.nodes import BatchLimits

LINGER_SECS = 0.1
"""Without `max_batch_duration_secs`, rows wait for others until none has come for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStatistics:
    """What waits in a batcher now, the size it aims at, and what it has cut so far."""

    waiting_rows: int
    waiting_sources: int
    target_rows: int
    batches: int = 0
    weight: float = 0.0
    """Of all batches; of padded ones with the padding."""
    real_weight: float = 0.0


class Batcher:
    """Cuts rows that arrive in runs into batches, within `BatchLimits` and near the cost model's target.

    Rows leave in the order in which they came or, `padded`, with rows of like length. Not locked: the engine calls it
    under its own lock, and passes the time.

    >>> from headrace.plan.nodes import BatchLimits
    >>> batcher = Batcher(BatchLimits(max_batch_size=4))
    >>> batcher.add(7, 6, now=0.0)
    >>> batcher.take(0.0).pieces
    [Piece(source=7, rows=range(0, 4))]
    >>> batcher.take(0.0), batcher.wait_until(0.0), batcher.take(0.1).pieces
    (None, 0.1, [Piece(source=7, rows=range(4, 6))])
    """

    def __init__(
        self,
        limits: BatchLimits,
        *,
        padded: bool = False,
        learnt: Learnt | None = None,
    ) -> None:
        """`learnt` is what an earlier run has learnt of such batches."""
        self._min_rows = max(1, limits.min_batch_size)
        self._max_rows: float = inf if limits.max_batch_size is None else limits.max_batch_size
        self._max_wait_secs = limits.max_batch_duration_secs
        self._latency_secs = limits.target_latency_secs
        self._max_weight = inf if limits.max_batch_weight is None else limits.max_batch_weight
        known = learnt or Learnt()
        self._cost = CostModel(known.costs)
        self._ceiling = Ceiling(known.fits, known.bursts, known.burst_once)
        self._waiting = Window(max_rows=limits.sort_window_rows) if padded else Line()
        self._last_arrival = -inf
        self._batches, self._cut_weight, self._cut_real_weight = 0, 0.0, 0.0

    def add(self, source: int, rows: int, now: float, weights: NDArray[Any] | None = None) -> None:
        """Append `rows` rows of a source (the caller's id, added once); each weighs 1 or as `weights` says."""
        if rows > 0:
            self._waiting.add(source, rows, now, weights)
            self._last_arrival = now

    @property
    def has_room(self) -> bool:
        """Whether rows that are at hand had better be added before the next `take`; none is worth waiting for."""
        return self._waiting.has_room

    def take(self, now: float, *, flush: bool = False) -> Batch | None:
        """Return the next batch, or None where it is better to wait for more rows.

        Pass `flush=True` when no more rows can come: at the end, and also when the buffers in front are full.
        """
        if not self._waiting.rows or not (flush or self._full() or self._waited_until() <= now):
            return None
        batch = self._waiting.cut(self._bounds())
        self._batches += 1
        self._cut_weight += batch.weight
        self._cut_real_weight += batch.real_weight
        return batch

    def wait_until(self, now: float) -> float | None:
        """Return when `take` will have a batch if nothing more arrives; None if only more rows or a flush can help."""
        if not self._waiting.rows:
            return None
        if self._full():
            return now
        due = self._waited_until()
        return None if due == inf else max(now, due)

    def overdue(self, now: float) -> bool:
        """Whether rows have waited as long as they may, however few they are."""
        return self._waiting.rows > 0 and self._waited_until() <= now

    def observe(self, weight: float, seconds: float) -> None:
        """Tell what a batch that was answered whole has cost, for the size of those to come."""
        self._cost.observe(weight, seconds)
        self._ceiling.answered(weight)

    def exhausted(self, weight: float) -> None:
        """Tell that memory ran out in a call of this weight."""
        self._ceiling.exhausted(weight)

    def learnt(self) -> Learnt:
        """Return what a later run may begin with."""
        fits, bursts, burst_once = self._ceiling.known()
        return Learnt(costs=tuple(self._cost.points()), fits=fits, bursts=bursts, burst_once=burst_once)

    @property
    def waiting_rows(self) -> int:
        """Rows added and not yet taken."""
        return self._waiting.rows

    @property
    def target_rows(self) -> int:
        """Rows that the next full batch will have, at the mean weight of those waiting."""
        rows = self._target_weight() / self._row_weight()
        return int(min(max(rows, self._min_rows), self._max_rows))

    def statistics(self) -> BatcherStatistics:
        """Return what waits now, and what has been cut."""
        return BatcherStatistics(
            waiting_rows=self._waiting.rows,
            waiting_sources=self._waiting.sources,
            target_rows=self.target_rows,
            batches=self._batches,
            weight=self._cut_weight,
            real_weight=self._cut_real_weight,
        )

    def _full(self) -> bool:
        if self._waiting.rows >= self._max_rows or self._waiting.weight >= self._most():
            return True
        return self._waiting.rows >= self._min_rows and self._waiting.weight >= self._target_weight()

    def _waited_until(self) -> float:
        due = inf
        if self._max_wait_secs is not None:
            due = self._waiting.first_arrival + self._max_wait_secs
        if self._latency_secs is not None:
            work_secs = self._cost.seconds(min(self._waiting.weight, self._target_weight()))
            due = min(due, self._waiting.first_arrival + max(0.0, self._latency_secs - work_secs))
        if due == inf and self._waiting.rows >= self._min_rows:
            return self._last_arrival + LINGER_SECS
        return due

    def _bounds(self) -> Bounds:
        target = self._target_weight()
        return Bounds(
            target=target,
            most=self._most(),
            min_rows=self._min_rows,
            max_rows=self._max_rows,
            overhead=self._cost.overhead(target),
        )

    def _target_weight(self) -> float:
        target = min(self._cost.target(self._row_weight()), self._most())
        if self._latency_secs is None:
            return target
        # Half of the time for the batch itself, since a row may just have missed the one before.
        return min(target, max(self._cost.weight_within(self._latency_secs / 2), self._row_weight()))

    def _most(self) -> float:
        return min(self._max_weight, self._ceiling.weight)

    def _row_weight(self) -> float:
        return self._waiting.weight / self._waiting.rows if self._waiting.rows and self._waiting.weight > 0 else 1.0
