from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.bounds import Bounds
from headrace.model.window import Window, alike

lengths = st.lists(st.integers(0, 200), min_size=1, max_size=60).map(lambda each: np.sort(np.array(each, dtype=float)))


@given(
    lengths=lengths,
    at=st.floats(0, 1, exclude_max=True),
    target=st.floats(0.5, 5_000),
    most=st.floats(0.5, 5_000) | st.just(inf),
    min_rows=st.integers(1, 20),
    more=st.integers(0, 20) | st.just(inf),
    overhead=st.floats(0, 1_000),
)
def test_a_range_holds_its_row_and_keeps_its_bounds(
    lengths: np.ndarray, at: float, target: float, most: float, min_rows: int, more: float, overhead: float
) -> None:
    row = int(at * len(lengths))
    bounds = Bounds(target=target, most=most, min_rows=min_rows, max_rows=min_rows + more, overhead=overhead)
    first, last = alike(lengths, row, bounds)
    assert 0 <= first <= row < last <= len(lengths)
    rows = last - first
    weight = rows * lengths[last - 1]
    assert rows <= bounds.max_rows
    assert rows == 1 or weight <= most
    assert rows <= min_rows or weight <= target
    if most == inf and min_rows + row < len(lengths):
        assert rows >= min_rows


@given(lengths=lengths, overhead=st.floats(0.1, 1_000))
def test_no_range_that_ends_at_the_same_row_wastes_less(lengths: np.ndarray, overhead: float) -> None:
    row = len(lengths) // 2
    first, last = alike(lengths, row, Bounds(target=inf, overhead=overhead))

    def waste(begin: int) -> float:
        return (overhead + (lengths[last - 1] - lengths[begin:last]).sum()) / (last - begin)

    assert waste(first) == pytest.approx(min(waste(begin) for begin in range(row + 1)))


def test_a_lone_long_row_goes_alone_and_is_not_kept_for_others_like_it() -> None:
    window = Window(max_rows=1_000)
    window.add(0, 1, 0.0, np.array([5_000]))
    for source in range(1, 10):
        window.add(source, 100, 0.0, np.full(100, 20))
        batch = window.cut(Bounds(target=2_000.0, overhead=100.0))
        if source == 1:
            assert [(piece.source, piece.rows.tolist()) for piece in batch.pieces] == [(0, [0])]
        else:
            assert batch.rows == 100


def test_padding_of_texts_of_mixed_length_is_small() -> None:
    rng = np.random.default_rng(0)
    texts = np.clip(np.round(rng.lognormal(3.4, 0.7, 20_000)), 5, 200)
    window = Window(max_rows=4_096)
    window.add(0, len(texts), 0.0, texts)
    padded = 0.0
    while window.rows:
        padded += window.cut(Bounds(target=2_000.0, overhead=100.0)).weight
    assert padded / texts.sum() < 1.05


def test_no_more_rows_than_the_window_holds_are_looked_over() -> None:
    window = Window(max_rows=4)
    assert window.has_room
    window.add(0, 3, 1.0, np.array([9, 1, 9]))
    window.add(1, 3, 2.0, np.array([1, 9, 9]))
    assert (window.rows, window.weight, window.has_room, window.first_arrival) == (6, 38.0, False, 1.0)
    batch = window.cut(Bounds(target=inf))
    assert [(piece.source, piece.rows.tolist()) for piece in batch.pieces] == [(0, [0, 2])], "1, 1 is behind"
    assert window.rows == 4
