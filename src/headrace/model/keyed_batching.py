"""Batching for several models: which rows, of which model, go next; decided without threads and without a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headrace.model.batch import Piece
from headrace.model.batching import LINGER_SECS, BatcherStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.model.batch import Batch
    from headrace.model.batching import Batcher
    from headrace.plan.nodes import BatchLimits


class Residence(Protocol):
    """Who is in memory: what the choice of the next batch has to know of it."""

    def is_ready(self, name: str) -> bool:
        """Whether a model can be used at once."""
        ...

    def has_place(self, name: str) -> bool:
        """Whether nobody would have to leave for a model: it is there or on its way, or there is room for it."""
        ...

    def victims(self, name: str) -> tuple[str, ...]:
        """Name the models that would have to leave for one that is not there."""
        ...


@dataclass(slots=True, eq=False)
class _Run:
    """The rows of one block that have the same key."""

    source: int
    rows: NDArray[np.int64]
    """Which rows of the block."""
    came: int
    """The number of the block's first row, counting all rows that ever came."""
    waiting: NDArray[np.bool_]
    oldest: int
    """The number of the oldest row that waits."""

    def take(self, taken: NDArray[np.int64]) -> bool:
        """Note which rows go; say whether there are more."""
        self.waiting[taken] = False
        first = int(self.waiting.argmax())
        self.oldest = self.came + int(self.rows[first])
        return bool(self.waiting[first])


class KeyedBatcher:
    """Cuts rows of several models into batches of one model each, so that models are swapped rarely.

    Each key has a `Batcher`. Full batches of models in memory go first. A model that others would have to leave for is
    taken when nothing else can be done: the window is full (`sort_window_rows` from the oldest row to the newest, but
    at least a block), no more rows come, or time is up. Then it is the oldest row's turn; rows of models that are about
    to leave go before.

    >>> from headrace.model.batching import Batcher
    >>> from headrace.model.manager import ModelManager
    >>> from headrace.plan.nodes import BatchLimits
    >>> limits = BatchLimits(max_batch_size=8)
    >>> residence = ModelManager(100, sizes={"a": 60, "b": 60})
    >>> batcher = KeyedBatcher(limits, make=lambda key: Batcher(limits), residence=residence)
    >>> batcher.add(0, {"a": np.array([0, 2]), "b": np.array([1, 3])}, now=0.0)
    >>> [batcher.take(0.0, flush=True).key for _ in range(2)]
    ['a', 'b']
    """

    def __init__(self, limits: BatchLimits, *, make: Callable[[str], Batcher], residence: Residence) -> None:
        """`make` makes the batcher of a key when its first row comes."""
        self._window_rows = limits.sort_window_rows
        self._timed = limits.max_batch_duration_secs is not None or limits.target_latency_secs is not None
        self._make, self._residence = make, residence
        self._batchers: dict[str, Batcher] = {}
        self._runs: dict[str, dict[int, _Run]] = {}
        """By key, the runs that have rows waiting, by number; keys without any are not in it."""
        self._numbered = 0
        self._came = 0
        self._last_arrival = -inf

    def add(
        self,
        source: int,
        rows: Mapping[str, NDArray[np.int64]],
        now: float,
        weights: Mapping[str, NDArray[np.float64] | None] | None = None,
    ) -> None:
        """Append the rows of a source (the caller's id, added once), by key in ascending order, with their weights."""
        for key, some in rows.items():
            batcher = self.of(key)
            batcher.add(self._numbered, len(some), now, None if weights is None else weights[key])
            run = _Run(source, some, self._came, np.ones(len(some), dtype=bool), self._came + int(some[0]))
            self._runs.setdefault(key, {})[self._numbered] = run
            self._numbered += 1
        self._came += 1 + max(int(some[-1]) for some in rows.values())
        self._last_arrival = now

    def of(self, key: str) -> Batcher:
        """Return the batcher of one key, for what its batches have cost."""
        if key not in self._batchers:
            self._batchers[key] = self._make(key)
        return self._batchers[key]

    @property
    def has_room(self) -> bool:
        """Whether rows that are at hand had better be added before the next `take`."""
        return not self._window_is_full

    @property
    def waiting_rows(self) -> int:
        """Rows added and not yet taken."""
        return sum(self._batchers[key].waiting_rows for key in self._runs)

    def upcoming(self) -> Sequence[str]:
        """Name the keys that have rows waiting, that of the oldest row first."""
        return sorted(self._runs, key=self._oldest)

    def take(self, now: float, *, flush: bool = False) -> Batch | None:
        """Return the next batch, or None where it is better to wait for more rows.

        Pass `flush=True` when no more rows can come.
        """
        if not self._runs:
            return None
        keys = self.upcoming()
        for key in self._by_readiness(keys):
            if (batch := self._cut(key, now if self._timed else -inf, flush=flush)) is not None:
                return batch
        turn = self._whose_turn(keys, now, flush=flush)
        return None if turn is None else self._cut_before(turn, now)

    def wait_until(self, now: float) -> float | None:
        """Return when `take` will have a batch if nothing more arrives; None if only more rows or a flush can help."""
        if not self._runs:
            return None
        if self._window_is_full:
            return now
        if not self._timed:
            return self._last_arrival + LINGER_SECS
        due = [self._batchers[key].wait_until(now) for key in self._runs]
        return min((at for at in due if at is not None), default=None)

    def statistics(self) -> BatcherStatistics:
        """Return what waits now, and what has been cut; the size aimed at is the largest of all keys."""
        known = [batcher.statistics() for batcher in self._batchers.values()]
        return BatcherStatistics(
            waiting_rows=sum(one.waiting_rows for one in known),
            waiting_sources=len({run.source for runs in self._runs.values() for run in runs.values()}),
            target_rows=max((one.target_rows for one in known), default=0),
            batches=sum(one.batches for one in known),
            weight=sum(one.weight for one in known),
            real_weight=sum(one.real_weight for one in known),
        )

    @property
    def _window_is_full(self) -> bool:
        return bool(self._runs) and self._came - min(map(self._oldest, self._runs)) >= self._window_rows

    def _oldest(self, key: str) -> int:
        return next(iter(self._runs[key].values())).oldest

    def _by_readiness(self, keys: Sequence[str]) -> Iterator[str]:
        """Yield those whose models are there, then those for which nobody would have to leave; asked one by one."""
        others = []
        for key in keys:
            if self._residence.is_ready(key):
                yield key
            else:
                others.append(key)
        yield from (key for key in others if self._residence.has_place(key))

    def _whose_turn(self, keys: Sequence[str], now: float, *, flush: bool) -> str | None:
        """Return the key whose rows cannot wait any longer for a better moment."""
        if self._timed:
            overdue = next((key for key in keys if self._batchers[key].overdue(now)), None)
            if overdue is not None:
                return overdue
        elif now >= self._last_arrival + LINGER_SECS:
            return keys[0]
        return keys[0] if flush or self._window_is_full else None

    def _cut_before(self, key: str, now: float) -> Batch | None:
        """Cut the rows of a key; where others would leave for it, theirs first."""
        leaving = (one for one in self._residence.victims(key) if one in self._runs)
        return self._cut(next(leaving, key), now, flush=True)

    def _cut(self, key: str, now: float, *, flush: bool) -> Batch | None:
        batch = self._batchers[key].take(now, flush=flush)
        if batch is None:
            return None
        runs, pieces = self._runs[key], []
        for piece in batch.pieces:
            run, taken = runs[piece.source], np.asarray(piece.rows)
            if not run.take(taken):
                del runs[piece.source]
            pieces.append(Piece(run.source, run.rows[taken]))
        if not runs:
            del self._runs[key]
        return replace(batch, pieces=pieces, key=key)
