from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import AnswerError, PlanError
from headrace.model.buckets import POWERS, WHOLE_ROWS, check_pad_to, cuts, run_in_buckets

SIZES = st.none() | st.just(POWERS) | st.integers(1, 300) | st.lists(st.integers(1, 300), min_size=1, max_size=4)


@given(rows=st.integers(1, 5000), pad_to=SIZES)
def test_calls_hold_all_rows_and_have_the_sizes_asked_for(rows: int, pad_to: Any) -> None:
    calls = cuts(rows, pad_to)
    assert sum(real for real, _ in calls) == rows
    assert all(0 < real <= padded for real, padded in calls)
    sizes = {padded for _, padded in calls}
    if pad_to == POWERS:
        assert all(size & (size - 1) == 0 for size in sizes)
    elif pad_to is not None:
        assert sizes <= set([pad_to] if isinstance(pad_to, int) else pad_to)
    else:
        assert calls == [(rows, rows)]


@given(rows=st.integers(WHOLE_ROWS + 1, 100_000))
def test_powers_of_two_waste_at_most_a_quarter_of_the_work(rows: int) -> None:
    calls = cuts(rows)
    assert len(calls) <= 2
    assert rows >= 0.75 * sum(padded for _, padded in calls)


def test_few_sizes_for_many_batches() -> None:
    assert len({padded for rows in range(1, 4097) for _, padded in cuts(rows)}) == 13


@given(rows=st.integers(1, 400), pad_to=SIZES)
def test_answers_are_those_of_the_whole_batch(rows: int, pad_to: Any) -> None:
    batch = {"x": np.arange(rows), "y": np.arange(rows * 3).reshape(rows, 3)}

    def run(part: Any) -> Any:
        return {"sum": part["y"].sum(axis=1) + part["x"], "text": [str(n) for n in part["x"]]}

    answers, expected = run_in_buckets(run, batch, pad_to), run(batch)
    np.testing.assert_array_equal(answers["sum"], expected["sum"])
    assert list(answers["text"]) == expected["text"]


def test_padding_repeats_the_last_row() -> None:
    seen: list[Any] = []
    run_in_buckets(lambda part: seen.append(part.tolist()) or part, np.array([7, 8, 9]))
    assert seen == [[7, 8, 9, 9]]


@pytest.mark.parametrize("wrong", [1, -1])
def test_a_wrong_number_of_answers_is_not_cut_off_with_the_padding(wrong: int) -> None:
    with pytest.raises(AnswerError, match=rf"answered {8 + wrong} times for a batch of 5 rows that was padded to 8"):
        run_in_buckets(lambda part: np.zeros(len(part) + wrong), np.zeros(5))
    with pytest.raises(AnswerError, match="answered 1 times"):
        run_in_buckets(np.sum, np.zeros(5))


@pytest.mark.parametrize("pad_to", [POWERS, None, 8, [8, 64], (1,)])
def test_sizes_that_may_be_asked_for(pad_to: Any) -> None:
    check_pad_to(pad_to, handler_name="JaxModelHandler")


@pytest.mark.parametrize("pad_to", [0, -8, [], [8, 0], "powers", 2.5, True])
def test_sizes_that_are_none(pad_to: Any) -> None:
    with pytest.raises(PlanError, match=r"JaxModelHandler: pad_to=.* it may be 'powers of two', a number of rows"):
        check_pad_to(pad_to, handler_name="JaxModelHandler")
