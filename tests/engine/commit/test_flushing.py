from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.commit.flushing import HORIZON_SECS, LIMIT_SECS, PATIENCE_SECS, FillRate, should_flush

rates = st.floats(0, 1e3)
fills = st.floats(0, 1)


@given(age=st.floats(0, PATIENCE_SECS, exclude_max=True), fill=fills, rate=rates)
def test_young_rows_are_left_alone(age: float, fill: float, rate: float) -> None:
    assert not should_flush(age, fill=fill, fills_per_sec=rate)


@given(age=st.floats(LIMIT_SECS, 1e6), fill=fills, rate=rates)
def test_old_rows_are_written_whatever_the_rate(age: float, fill: float, rate: float) -> None:
    assert should_flush(age, fill=fill, fills_per_sec=rate)


@given(age=st.floats(PATIENCE_SECS, LIMIT_SECS, exclude_max=True), fill=fills, rate=rates)
def test_between_the_part_decides(age: float, fill: float, rate: float) -> None:
    assert should_flush(age, fill=fill, fills_per_sec=rate) == (1 - fill > rate * HORIZON_SECS)


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0, 10)), min_size=1, max_size=30))
def test_the_rate_lies_between_the_slowest_and_the_fastest_step(steps: list[tuple[float, float]]) -> None:
    rate, now, progress = FillRate(), 0.0, 0.0
    rate.observe(progress, now=now)
    for secs, more in steps:
        now, progress = now + secs, progress + more
        rate.observe(progress, now=now)
    speeds = [more / secs for secs, more in steps]
    assert min(speeds) * 0.999 - 1e-6 <= rate.per_sec <= max(speeds) * 1.001 + 1e-6


def test_a_stall_is_noticed() -> None:
    rate = FillRate()
    rate.observe(0, now=0.0)
    rate.observe(10, now=1.0)
    rate.observe(10, now=4.0)
    assert rate.per_sec < 0.1
