import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.model.cost import ENGINE_SECS
from headrace.model.splitting import Splitting, cheapest_size

SHARES = st.floats(1e-6, 1.0)
CALL_ROWS = st.floats(1.0, 5_000.0)


def cost_of(bad: list[bool], call_rows: float, *, deduced: bool = False) -> float:
    """What halving costs, told as the predictor does it."""
    cost = 0.0
    if len(bad) == 1 or not deduced:
        cost += call_rows + len(bad)
        if not any(bad) or len(bad) == 1:
            return cost
    half = len(bad) // 2
    left = cost_of(bad[:half], call_rows)
    return cost + left + cost_of(bad[half:], call_rows, deduced=not any(bad[:half]))


def cost_a_row(rows: list[bool], size: int, call_rows: float) -> float:
    return sum(cost_of(rows[i : i + size], call_rows) for i in range(0, len(rows), size)) / len(rows)


@pytest.mark.parametrize("call_rows", [4.0, 64.0, 1_000.0])
@pytest.mark.parametrize("failing", [0.002, 0.01, 0.1, 0.5])
def test_no_other_size_is_much_cheaper(failing: float, call_rows: float) -> None:
    draw = random.Random(0)
    rows = [draw.random() < failing for _ in range(2**15)]
    chosen = cost_a_row(rows, cheapest_size(failing, call_rows, most=2**12), call_rows)
    assert chosen <= 1.05 * min(cost_a_row(rows, 2**power, call_rows) for power in range(13))


@given(SHARES, CALL_ROWS, st.integers(1, 10**6))
def test_the_size_is_within_bounds(failing: float, call_rows: float, most: int) -> None:
    assert 1 <= cheapest_size(failing, call_rows, most=most) <= most


@given(SHARES, SHARES, CALL_ROWS)
def test_the_more_rows_fail_the_smaller_the_calls(one: float, other: float, call_rows: float) -> None:
    sizes = [cheapest_size(failing, call_rows, most=10**6) for failing in sorted((one, other))]
    assert sizes == sorted(sizes, reverse=True)


@given(SHARES, CALL_ROWS, CALL_ROWS)
def test_the_dearer_the_calls_the_larger_they_are(failing: float, one: float, other: float) -> None:
    sizes = [cheapest_size(failing, call_rows, most=10**6) for call_rows in sorted((one, other))]
    assert sizes == sorted(sizes)


@given(st.integers(1, 10**6))
def test_nothing_is_cut_before_anything_has_failed(count: int) -> None:
    splitting = Splitting()
    splitting.observe(1_000, failed=0)
    assert splitting.rows_at_once(count) == count


@given(st.integers(1, 10**5), st.integers(1, 1_000), st.integers(0, 10**6))
def test_calls_are_of_equal_size(count: int, failed: int, sound: int) -> None:
    splitting = Splitting()
    splitting.observe(failed + sound, failed=failed)
    size = splitting.rows_at_once(count)
    calls = -(-count // size)
    assert 1 <= size <= count
    assume(calls > 1)
    assert size - (count - (calls - 1) * size) < calls, "the last call is not much smaller than the others"


def test_a_model_whose_calls_are_dear_is_asked_more_rows_at_once() -> None:
    def size(fixed_secs: float) -> int:
        splitting = Splitting()
        for rows in (16, 256, 4_096):
            splitting.answered(rows, fixed_secs + rows * 1e-5)
        splitting.observe(100_000, failed=100)
        return splitting.rows_at_once(2**14)

    assert size(0.0) < size(0.002) < size(0.03)
    assert ENGINE_SECS < 0.002


def test_what_failed_long_ago_counts_less() -> None:
    splitting = Splitting()
    splitting.observe(10_000, failed=5_000)
    before = splitting.rows_at_once(2**14)
    for _ in range(400):
        splitting.observe(2**14, failed=0)
    assert before == 1
    assert splitting.rows_at_once(2**14) > 1_000
