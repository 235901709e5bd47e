import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rounds import interleave, ratio, spread

SECONDS = st.floats(min_value=1e-3, max_value=1e3)


def test_candidates_take_turns():
    order = []

    def candidate(name):
        def measure():
            order.append(name)
            return float(len(order))

        return measure

    values = interleave({"a": candidate("a"), "b": candidate("b")}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert values == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_a_ratio_is_taken_within_each_round():
    # The machine was ten times slower in the second round; that says nothing about the two programs.
    assert ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == 0.5


def test_a_ratio_of_unequal_numbers_of_runs_is_refused():
    with pytest.raises(ValueError):
        ratio([1.0, 2.0], [1.0])


@given(st.lists(SECONDS, min_size=1, max_size=9), st.floats(min_value=0.1, max_value=10))
def test_drift_that_hits_both_sides_of_each_round_cancels_out(drift, factor):
    assert ratio([d * factor for d in drift], drift) == pytest.approx(factor)


@given(SECONDS, st.integers(min_value=1, max_value=5))
def test_equal_values_have_no_spread(value, count):
    assert spread([value] * count) == 0


def test_spread_is_relative_to_the_median():
    assert spread([9.0, 10.0, 12.0]) == pytest.approx(0.3)
