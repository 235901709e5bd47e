"""Functions that are called again: each attempt gets the row as it was, and children come once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.attended import Attended
from headrace.errors import RowError
from headrace.model.attempts import Attempts
from headrace.plan.retry import Retry


def attended(function, attempts: int = 3, **options) -> Attended:
    return Attended(function, Attempts(Retry(attempts, **options), pause=lambda secs: None))


def test_each_attempt_gets_the_row_as_it_was() -> None:
    seen = []

    def spoiling(row):
        seen.append(row.pop("x"))
        if len(seen) < 3:
            raise OSError
        return row

    assert attended(spoiling)({"x": 1}) == {}
    assert seen == [1, 1, 1]


def test_a_row_error_that_is_returned_counts_as_raised() -> None:
    answers = iter([RowError("busy"), {"x": 1}])
    assert attended(lambda row: next(answers), on=RowError)({}) == {"x": 1}
    with pytest.raises(RowError):
        attended(lambda row: RowError("dark"))({})


@given(children=st.integers(0, 8), breaks=st.lists(st.integers(0, 8), max_size=6))
def test_children_come_once_and_in_order_wherever_the_function_breaks(children, breaks) -> None:
    left = list(breaks)

    def function(row):
        for i in range(children):
            if left and left[0] == i:
                left.pop(0)
                raise OSError
            yield i

    assert list(attended(function, attempts=10).children({})) == list(range(children))


def test_children_that_fail_for_good_raise_after_those_that_came() -> None:
    def function(row):
        yield 1
        raise OSError("gone")

    coming = attended(function).children({})
    assert next(coming) == 1
    with pytest.raises(OSError, match="gone"):
        next(coming)
