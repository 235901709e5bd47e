from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.batching import LINGER_SECS, Batcher, Piece
from headrace.plan.nodes import BatchLimits


def rows_of(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [(p.source, p.first + i) for p in pieces for i in range(p.count)]


def test_waits_for_the_target_then_lingers() -> None:
    batcher = Batcher(BatchLimits())
    assert batcher.wait_until(0.0) is None
    batcher.add(0, 10, 0.0)
    batcher.add(1, 10, 0.05)
    assert batcher.take(0.1) is None
    assert batcher.wait_until(0.1) == 0.05 + LINGER_SECS
    assert batcher.take(0.05 + LINGER_SECS) == [Piece(0, 0, 10), Piece(1, 0, 10)]
    assert batcher.waiting_rows == 0


def test_a_full_batch_goes_at_once_and_may_cross_sources() -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(0, 50, 0.0)
    batcher.add(1, 50, 0.0)
    assert batcher.wait_until(0.0) == 0.0
    assert batcher.take(0.0) == [Piece(0, 0, 50), Piece(1, 0, 14)]
    assert batcher.take(0.0) is None
    assert batcher.take(0.0, flush=True) == [Piece(1, 14, 36)]
    assert batcher.take(0.0, flush=True) is None


def test_too_few_rows_wait_for_more_or_for_a_flush() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=8))
    batcher.add(0, 5, 0.0)
    assert batcher.wait_until(99.0) is None
    assert batcher.take(99.0) is None
    assert batcher.take(99.0, flush=True) == [Piece(0, 0, 5)]


def test_duration_bounds_the_wait_of_the_first_row_also_below_the_minimum() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=8, max_batch_duration_secs=2.0))
    batcher.add(0, 3, 10.0)
    batcher.add(1, 1, 11.5)
    assert batcher.take(11.9) is None
    assert batcher.wait_until(11.9) == 12.0
    assert batcher.take(12.0) == [Piece(0, 0, 3), Piece(1, 0, 1)]


def test_equal_bounds_give_batches_of_that_size() -> None:
    batcher = Batcher(BatchLimits(min_batch_size=4, max_batch_size=4))
    batcher.add(0, 13, 0.0)
    sizes = []
    while (pieces := batcher.take(0.0, flush=batcher.waiting_rows < 4)) is not None:
        sizes.append(sum(p.count for p in pieces))
    assert sizes == [4, 4, 4, 1]


def test_observed_costs_move_the_target() -> None:
    batcher = Batcher(BatchLimits(max_batch_size=200))
    batcher.observe(64, 0.001)
    assert batcher.statistics().target_rows == 200
    batcher = Batcher(BatchLimits())
    batcher.observe(64, 0.001)
    assert batcher.statistics().target_rows == 256


def test_weight_bounds_a_batch_but_a_heavier_row_still_goes() -> None:
    batcher = Batcher(BatchLimits(), max_weight=10)
    batcher.add(0, 5, 0.0, np.array([4, 5, 3, 25, 1]))
    taken = [batcher.take(0.0, flush=True) for _ in range(5)]
    assert taken == [[Piece(0, 0, 2)], [Piece(0, 2, 1)], [Piece(0, 3, 1)], [Piece(0, 4, 1)], None]


runs = st.lists(st.tuples(st.integers(0, 150), st.floats(0, 1), st.booleans()), max_size=20)


@given(
    runs=runs,
    lowest=st.integers(1, 50),
    more=st.none() | st.integers(0, 100),
    duration=st.none() | st.floats(0, 2),
    max_weight=st.none() | st.floats(1, 500),
    costs=st.lists(st.floats(0, 2), max_size=3),
)
def test_no_row_lost_or_twice_order_and_bounds_kept(
    runs: list[tuple[int, float, bool]],
    lowest: int,
    more: int | None,
    duration: float | None,
    max_weight: float | None,
    costs: list[float],
) -> None:
    highest = None if more is None else lowest + more
    limits = BatchLimits(min_batch_size=lowest, max_batch_size=highest, max_batch_duration_secs=duration)
    batcher = Batcher(limits, max_weight=max_weight)
    weights = {n: np.arange(rows) % 7 + 1.0 for n, (rows, _, weighed) in enumerate(runs) if weighed}
    now, taken, waits = 0.0, [], list(costs)

    def drain(*, flush: bool) -> None:
        while (pieces := batcher.take(now, flush=flush)) is not None:
            rows = rows_of(pieces)
            weight = sum(weights[s][r] if s in weights else 1.0 for s, r in rows)
            assert rows
            assert highest is None or len(rows) <= highest
            assert max_weight is None or weight <= max_weight + 1e-6 or len(rows) == 1
            if not flush and duration is None and max_weight is None:
                assert len(rows) >= lowest
            taken.extend(rows)
            if waits:
                batcher.observe(len(rows), waits.pop())

    for source, (rows, pause, _) in enumerate(runs):
        batcher.add(source, rows, now, weights.get(source))
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
    assert taken == [(source, row) for source, (rows, _, _) in enumerate(runs) for row in range(rows)]


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_no_run_of_no_rows_is_kept(rows: int, source: int) -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(source, 0, 0.0)
    assert batcher.take(0.0, flush=True) is None
    batcher.add(source, rows, 0.0)
    assert batcher.take(0.0, flush=True) == [Piece(source, 0, min(rows, 64))]


def test_statistics_count_what_waits() -> None:
    batcher = Batcher(BatchLimits())
    batcher.add(3, 10, 0.0)
    assert (batcher.statistics().waiting_rows, batcher.statistics().waiting_sources) == (10, 1)
    assert batcher.statistics().target_rows == pytest.approx(64)
