"""Retry: how often, after what pause, and for which errors; all of it decided without a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import AnswerError, PlanError, RowError
from headrace.plan.retry import Retry

SECS = st.floats(0, 1e6)
LUCK = st.floats(0, 1, exclude_max=True)


@given(first=SECS, most=SECS, attempt=st.integers(1, 10_000), luck=LUCK)
def test_a_pause_is_between_half_and_all_of_what_doubling_up_to_the_bound_gives(first, most, attempt, luck) -> None:
    first, most = min(first, most), max(first, most)
    retry = Retry(backoff_secs=first, max_backoff_secs=most)
    whole = min(most, first * 2.0 ** min(attempt - 1, 64))
    assert whole / 2 <= retry.delay_secs(attempt, luck) <= whole


@given(attempt=st.integers(1, 100), luck=LUCK)
def test_pauses_never_shrink_with_the_same_luck(attempt, luck) -> None:
    retry = Retry(backoff_secs=0.1)
    assert retry.delay_secs(attempt, luck) <= retry.delay_secs(attempt + 1, luck)


@given(attempts=st.integers(1, 50))
def test_so_many_attempts_are_made_and_no_more(attempts) -> None:
    retry, made = Retry(attempts), 1
    while retry.again(OSError(), made):
        made += 1
    assert made == attempts


@pytest.mark.parametrize("on", [OSError, "OSError", "builtins.OSError", [KeyError, "TimeoutError"], TimeoutError])
def test_an_error_is_known_by_its_type_its_ancestors_and_their_names(on) -> None:
    assert Retry(on=on).again(TimeoutError(), 1)
    assert not Retry(on=on).again(ValueError(), 1)


def test_what_says_that_a_row_is_bad_is_not_asked_again_unless_it_is_named() -> None:
    assert Retry().again(ValueError(), 1)
    assert not Retry().again(RowError("too dark"), 1)
    assert not Retry().again(AnswerError("3 answers for 4 rows"), 1)
    assert Retry(on=RowError).again(RowError("busy"), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"backoff_secs": -1},
        {"backoff_secs": 5, "max_backoff_secs": 1},
        {"backoff_secs": float("nan")},
        {"on": [3]},
        {"on": "Connection Error"},
        {"on": int},
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(PlanError):
        Retry(**wrong)
