from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.batch import Batch
from headrace.model.batching import LINGER_SECS, Batcher
from headrace.model.learnt import Learnt
from headrace.plan.nodes import BatchLimits


def rows_of(batch: Batch) -> list[tuple[int, int]]:
    return [(piece.source, int(row)) for piece in batch.pieces for row in piece.rows]


def runs_of(batch: Batch | None) -> list[tuple[int, int, int]]:
    """Return source, first row and number of rows of each piece."""
    assert batch is not None
    return [(piece.source, piece.rows[0], len(piece.rows)) for piece in batch.pieces]


def test_waits_for_the_target_then_lingers() -> None:
    batcher = Batcher(BatchLimits())
    assert batcher.wait_until(0.0) is None
    batcher.add(0, 10, 0.0)
    batcher.add(1, 10, 0.05)
    assert batcher.take(0.1) is None
    assert batcher.wait_until(0.1) == 0.05 + LINGER_SECS
    assert runs_of(batcher.take(0.05 + LINGER_SECS)) == [(0, 0, 10), (1, 0, 10)]
    assert batcher.waiting_rows == 0


def test_a_full_batch_goes_at_once_and_may_cross_sources() -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(0, 50, 0.0)
    batcher.add(1, 50, 0.0)
    assert batcher.wait_until(0.0) == 0.0
    assert runs_of(batcher.take(0.0)) == [(0, 0, 50), (1, 0, 14)]
    assert batcher.take(0.0) is None
    assert runs_of(batcher.take(0.0, flush=True)) == [(1, 14, 36)]
    assert batcher.take(0.0, flush=True) is None


def test_too_few_rows_wait_for_more_or_for_a_flush() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=8))
    batcher.add(0, 5, 0.0)
    assert batcher.wait_until(99.0) is None
    assert batcher.take(99.0) is None
    assert runs_of(batcher.take(99.0, flush=True)) == [(0, 0, 5)]


def test_duration_bounds_the_wait_of_the_first_row_also_below_the_minimum() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=8, max_batch_duration_secs=2.0))
    batcher.add(0, 3, 10.0)
    batcher.add(1, 1, 11.5)
    assert batcher.take(11.9) is None
    assert batcher.wait_until(11.9) == 12.0
    assert runs_of(batcher.take(12.0)) == [(0, 0, 3), (1, 0, 1)]


def test_equal_bounds_give_batches_of_that_size() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=4, max_batch_size=4))
    batcher.add(0, 13, 0.0)
    sizes = []
    while (batch := batcher.take(0.0, flush=batcher.waiting_rows < 4)) is not None:
        sizes.append(batch.rows)
    assert sizes == [4, 4, 4, 1]


def test_observed_costs_move_the_target() -> None:
    batcher = Batcher(BatchLimits(max_batch_size=200))
    batcher.observe(64, 0.001)
    assert batcher.statistics().target_rows == 200
    batcher = Batcher(BatchLimits())
    batcher.observe(64, 0.001)
    assert batcher.statistics().target_rows == 256


def test_weight_bounds_a_batch_but_a_heavier_row_still_goes() -> None:
    batcher = Batcher(BatchLimits(max_batch_weight=10))
    batcher.add(0, 5, 0.0, np.array([4, 5, 3, 25, 1]))
    taken = [batcher.take(0.0, flush=True) for _ in range(4)]
    assert [runs_of(batch) for batch in taken] == [[(0, 0, 2)], [(0, 2, 1)], [(0, 3, 1)], [(0, 4, 1)]]
    assert [batch.weight for batch in taken if batch] == [9, 3, 25, 1]
    assert batcher.take(0.0, flush=True) is None


runs = st.lists(st.tuples(st.integers(0, 80), st.floats(0, 1), st.booleans()), max_size=8)


@given(
    runs=runs,
    lowest=st.integers(1, 50),
    more=st.none() | st.integers(0, 100),
    duration=st.none() | st.floats(0, 2),
    max_weight=st.none() | st.floats(1, 500),
    costs=st.lists(st.floats(0, 2), max_size=3),
    padded=st.booleans(),
    window=st.integers(1, 200),
)
def test_no_row_lost_or_twice_order_and_bounds_kept(
    runs: list[tuple[int, float, bool]],
    lowest: int,
    more: int | None,
    duration: float | None,
    max_weight: float | None,
    costs: list[float],
    padded: bool,
    window: int,
) -> None:
    highest = None if more is None else lowest + more
    limits = BatchLimits(
        min_batch_size=lowest,
        max_batch_size=highest,
        max_batch_duration_secs=duration,
        max_batch_weight=max_weight,
        sort_window_rows=window,
    )
    batcher = Batcher(limits, padded=padded)
    weights = {n: np.arange(rows) % 7 + 1.0 for n, (rows, _, weighed) in enumerate(runs) if weighed}
    now, taken, waits = 0.0, [], list(costs)
    left: set[tuple[int, int]] = set()

    def drain(*, flush: bool) -> None:
        while (batch := batcher.take(now, flush=flush)) is not None:
            rows = rows_of(batch)
            each = [weights[s][r] if s in weights else 1.0 for s, r in rows]
            weight = len(rows) * max(each) if padded else sum(each)
            assert (batch.rows, batch.weight, batch.real_weight) == pytest.approx((len(rows), weight, sum(each)))
            assert highest is None or len(rows) <= highest
            assert max_weight is None or weight <= max_weight + 1e-6 or len(rows) == 1
            if not flush and duration is None and max_weight is None and (not padded or window >= lowest):
                assert len(rows) >= lowest
            waiting = sorted(left)
            assert waiting[0] in rows, "the oldest row goes with the next batch"
            assert set(rows) <= set(waiting[:window] if padded else waiting[: len(rows)])
            left.difference_update(rows)
            taken.extend(rows)
            if waits:
                batcher.observe(len(rows), waits.pop())

    for source, (rows, pause, _) in enumerate(runs):
        batcher.add(source, rows, now, weights.get(source))
        left.update((source, row) for row in range(rows))
        drain(flush=False)
        due = batcher.wait_until(now)
        now += pause
        if due is not None and due <= now:
            now = due
            before = batcher.waiting_rows
            drain(flush=False)
            assert batcher.waiting_rows < before, "wait_until promised a batch"
        assert batcher.waiting_rows == sum(r for r, _, _ in runs[: source + 1]) - len(taken)
    drain(flush=True)
    expected = [(source, row) for source, (rows, _, _) in enumerate(runs) for row in range(rows)]
    assert (sorted(taken) if padded else taken) == expected
    assert not left


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_no_run_of_no_rows_is_kept(rows: int, source: int) -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(source, 0, 0.0)
    assert batcher.take(0.0, flush=True) is None
    batcher.add(source, rows, 0.0)
    assert runs_of(batcher.take(0.0, flush=True)) == [(source, 0, min(rows, 64))]


def test_statistics_count_what_waits() -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(3, 10, 0.0)
    assert (batcher.statistics().waiting_rows, batcher.statistics().waiting_sources) == (10, 1)
    assert batcher.statistics().target_rows == pytest.approx(64)


def test_batches_are_counted_with_their_padding() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=2, max_batch_size=2), padded=True)
    batcher.add(0, 4, 0.0, np.array([3, 9, 2, 10]))
    assert [rows_of(batch) for _ in range(2) if (batch := batcher.take(0.0))] == [[(0, 0), (0, 2)], [(0, 1), (0, 3)]]
    counted = batcher.statistics()
    assert (counted.batches, counted.weight, counted.real_weight) == (2, 26, 24)


def test_latency_bounds_the_batch_and_the_wait() -> None:
    batcher = Batcher(BatchLimits(target_latency_secs=0.5))
    for weight in (64, 256, 1024):
        batcher.observe(weight, 0.05 + 0.001 * weight)
    assert batcher.target_rows == pytest.approx(199, abs=1), "a batch takes half of the time"
    batcher.add(0, 10, 100.0)
    due = batcher.wait_until(100.0)
    assert due == pytest.approx(100.5 - 0.06, abs=0.002), "what is left is for the model"
    assert batcher.take(100.3) is None
    assert batcher.take(due) is not None


def test_late_rows_do_not_wait_where_latency_is_short() -> None:
    batcher = Batcher(BatchLimits(target_latency_secs=0.001))
    batcher.observe(64, 0.5)
    batcher.add(0, 3, 100.0)
    assert batcher.wait_until(100.0) == 100.0
    assert runs_of(batcher.take(100.0)) == [(0, 0, 1)]


def test_what_was_learnt_is_where_a_later_batcher_begins() -> None:
    first = Batcher(BatchLimits())
    for weight in (64, 256, 1024):
        first.observe(weight, 0.01 + 0.0001 * weight)
    first.exhausted(3000)
    second = Batcher(BatchLimits(), learnt=Learnt.from_json(first.learnt().to_json()))
    assert second.target_rows == first.target_rows > 1024
    assert second.learnt() == first.learnt()
    assert Batcher(BatchLimits(), learnt=Batcher(BatchLimits()).learnt()).target_rows == 64
