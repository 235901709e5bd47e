from __future__ import annotations

from math import inf, log2

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.ceiling import CLOSE, PATIENCE, Ceiling


def run(ceiling: Ceiling, limit: float, *, batches: int, wanted: float = inf) -> tuple[list[float], int]:
    """Let batches of the allowed weight meet a hidden limit, each growing fourfold at most; return what was answered."""
    answered: list[float] = []
    failures = 0
    heaviest = 64.0
    for _ in range(batches):
        weight = min(ceiling.weight, 4 * heaviest, wanted)
        while weight > limit:
            failures += 1
            ceiling.exhausted(weight)
            weight /= 2
            if weight <= limit:
                break
        else:
            ceiling.answered(weight)
        answered.append(weight)
        heaviest = max(heaviest, weight)
    return answered, failures


@given(st.floats(64, 1e6))
def test_the_limit_is_found_to_a_few_percent_and_at_few_failures(limit: float) -> None:
    ceiling = Ceiling()
    answered, failures = run(ceiling, limit, batches=20)
    assert limit / CLOSE**2 <= answered[-1] <= limit
    assert failures <= log2(limit) + 2


@given(st.floats(64, 1e5), st.floats(0.01, 0.9))
def test_a_limit_that_falls_is_found_again(limit: float, share: float) -> None:
    ceiling = Ceiling()
    run(ceiling, limit, batches=30)
    answered, failures = run(ceiling, limit * share, batches=20)
    assert limit * share / CLOSE**2 <= answered[-1] <= limit * share
    assert failures <= log2(1 / share) + 8


def test_a_limit_that_rises_is_found_in_time() -> None:
    ceiling = Ceiling()
    run(ceiling, 1_000, batches=30)
    answered, failures = run(ceiling, 10_000, batches=2 * PATIENCE)
    assert answered[-1] > 9_000
    assert failures <= 8


def test_what_was_too_much_is_tried_more_and_more_seldom() -> None:
    _, early = run(ceiling := Ceiling(), 1_000, batches=20)
    _, later = run(ceiling, 1_000, batches=20 * PATIENCE)
    assert 1 <= later <= 25
    assert early <= 8


def test_nothing_is_tried_that_nobody_wants() -> None:
    ceiling = Ceiling()
    run(ceiling, 1_000, batches=5)
    _, failures = run(ceiling, 1_000, batches=1_000, wanted=500)
    assert failures == 0
