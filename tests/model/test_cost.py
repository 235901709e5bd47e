from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.cost import ENGINE_SECS, GROWTH, START_ROWS, CostModel


def run(cost: CostModel, *, fixed: float, per_row: float, batches: int = 30) -> list[float]:
    """Let the model choose its own batches against a true line; return the sizes it chose."""
    sizes = []
    for _ in range(batches):
        size = int(cost.target())
        sizes.append(size)
        cost.observe(size, fixed + per_row * size)
    return sizes


def test_starts_small_and_grows_by_steps() -> None:
    sizes = run(CostModel(), fixed=0.001, per_row=1e-7)
    assert sizes[0] == START_ROWS
    assert all(after <= GROWTH * max(sizes[: i + 1]) for i, after in enumerate(sizes[1:]))


def test_fixed_part_ends_at_four_percent() -> None:
    cost = CostModel()
    run(cost, fixed=0.001, per_row=1e-7)
    overhead = 0.001 + ENGINE_SECS
    assert overhead / (overhead + 1e-7 * cost.target()) == pytest.approx(0.04, abs=0.004)


def test_batches_stay_near_a_second() -> None:
    cost = CostModel()
    run(cost, fixed=0.2, per_row=0.004)
    assert 0.2 + 0.004 * cost.target() == pytest.approx(1.0, abs=0.1)


def test_a_very_slow_model_shrinks_below_the_start() -> None:
    cost = CostModel()
    run(cost, fixed=0.0, per_row=0.5)
    assert 1 <= cost.target() <= 3


def test_slow_rows_come_in_short_batches_where_the_fixed_part_is_negligible() -> None:
    cost = CostModel()
    sizes = run(cost, fixed=0.0005, per_row=0.017)
    assert sizes[:5] == [64, 58, 58, 58, 5]
    assert cost.target() == pytest.approx(99 * 0.001 / 0.017, rel=0.1)


def test_what_looks_negligible_in_one_size_is_tried_in_another() -> None:
    cost = CostModel()
    sizes = run(cost, fixed=0.3, per_row=0.02)
    assert min(sizes) < 10
    assert cost.target() == pytest.approx((1 - 0.3) / 0.02, rel=0.1)


def test_slow_first_calls_make_no_short_batches() -> None:
    cost = CostModel()
    cost.observe(64, 5.0)
    cost.observe(64, 3.0)
    assert cost.target() >= 20
    run(cost, fixed=0.05, per_row=0.003)
    assert cost.target() == pytest.approx((1 - 0.05) / 0.003, rel=0.1)


def test_a_fixed_part_longer_than_a_second_is_shared_by_as_many_rows_as_cost_the_same() -> None:
    cost = CostModel()
    run(cost, fixed=3.0, per_row=0.01)
    assert cost.target() == pytest.approx(300, rel=0.1)


def test_a_slow_first_call_is_forgotten() -> None:
    cost = CostModel()
    cost.observe(64, 5.0)
    for _ in range(4):
        cost.observe(64, 0.0064)
    assert cost.target() == 256


def test_weights_scale_the_start() -> None:
    assert CostModel().target(row_weight=20.0) == 20 * START_ROWS


def test_learns_the_line() -> None:
    cost = CostModel()
    for size in (64, 256, 1024):
        cost.observe(size, 0.01 + 0.0001 * size)
    line = cost.cost()
    assert line is not None
    assert line.fixed_secs == pytest.approx(0.01 + ENGINE_SECS)
    assert line.per_weight_secs == pytest.approx(0.0001)


observations = st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 100)), max_size=50)


@given(observations)
def test_target_is_always_at_least_a_row_and_never_runs_ahead(seen: list[tuple[int, float]]) -> None:
    cost = CostModel()
    for weight, seconds in seen:
        cost.observe(weight, seconds)
    assert 1 <= cost.target() <= max(START_ROWS, GROWTH * max((w for w, _ in seen), default=0))
