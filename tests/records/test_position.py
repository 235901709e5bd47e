from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.position import END, START, between, is_whole

steps = st.integers(0, 5)
# As positions come about: a whole one, or something that `between` has returned, which never ends in 0.
positions = st.tuples(st.lists(steps, max_size=3), st.integers(1, 5)).map(lambda p: (*p[0], p[1]))
pairs = st.tuples(positions, positions).filter(lambda p: p[0] < p[1])


@given(pairs, st.lists(st.integers(1, 1_000), min_size=1, unique=True).map(sorted))
def test_a_series_lies_strictly_inside_and_grows(pair, indices):
    start, end = pair
    series = [start, *(between(start, end, i) for i in indices), end]
    assert all(left < right for left, right in pairwise(series))


@given(pairs, st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8))
def test_there_is_always_room_for_more(pair, path):
    """However often a range is cut, and whichever side is cut again."""
    start, end = pair
    for index, left in path:
        middle = between(start, end, index)
        assert start < middle < end
        start, end = (start, middle) if left else (middle, end)


def test_children_come_before_the_next_row():
    assert (7,) < between((7,), (8,), 1) < between((7,), (8,), 2) < (8,)


@pytest.mark.parametrize(("start", "end", "index"), [((2,), (2,), 1), ((3,), (2,), 1), ((2,), (3,), 0)])
def test_nothing_lies_between_what_is_in_no_order(start, end, index):
    with pytest.raises(AssertionError):
        between(start, end, index)


def test_whole_positions():
    assert is_whole(START)
    assert is_whole(END)
    assert not is_whole(between((3,), (4,), 1))


def test_the_end_is_after_every_row_that_fits_64_bits_of_ordinals():
    assert END > (2**62 - 1,)
    assert END > (2**62 - 1, 5)
