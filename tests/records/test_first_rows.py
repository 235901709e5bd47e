import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.first_rows import HOPELESS_ROWS, FirstRows

ERRORS = (ValueError("bad"), KeyError("age"), OSError("gone"))


@given(kinds=st.lists(st.sampled_from(ERRORS), max_size=2 * HOPELESS_ROWS), succeeded=st.integers(0, 2))
def test_it_is_hopeless_when_enough_rows_failed_and_none_succeeded(kinds: list[Exception], succeeded: int) -> None:
    first = FirstRows()
    for error in kinds:
        first.failed(error)
    assert first.hopeless(succeeded=succeeded) == (len(kinds) >= HOPELESS_ROWS and succeeded == 0)


def test_rows_that_are_asked_again_do_not_count_twice() -> None:
    first = FirstRows(enough=2)
    first.failed(ERRORS[0])
    first.withdraw(ERRORS[0])
    first.failed(ERRORS[0])
    assert not first.hopeless(succeeded=0)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [((0, 0), "all of the first 2 rows failed, so"), ((0, 0, 1), "2 with ValueError, 1 with KeyError")],
)
def test_the_error_tells_of_the_commonest_causes(kinds: tuple[int, ...], told: str) -> None:
    first = FirstRows(enough=2)
    for kind in kinds:
        first.failed(ERRORS[kind])
    error = str(first.stop("map"))
    assert told in error
    assert str(ERRORS[kinds[-1]]) in error
