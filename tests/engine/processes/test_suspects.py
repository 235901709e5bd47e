"""Blame: exactly the rows that kill are refused, at a price in workers that halving explains."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.processes.suspects import CRASHES_A_CALL, Suspects
from headrace.errors import RowCrash, RowTimeout
from headrace.model.calls import Call
from headrace.plan.retry import Retry


class DeadError(Exception):
    def __init__(self, call: Call) -> None:
        self.call = call


def answer(first: int, rows: int, killers: set[int], suspects: Suspects, failed: set[int]) -> None:
    """Work on rows as a worker does: what is refused is halved as if it had raised, and what kills kills."""
    call = Call(0, first, 0, rows)
    if call in suspects.sentences:
        if rows == 1:
            failed.add(first)
            return
        half = rows // 2
        answer(first, half, killers, suspects, failed)
        answer(first + half, rows - half, killers, suspects, failed)
    elif killers & set(range(first, first + rows)):
        raise DeadError(call)


@given(rows=st.integers(1, 64), data=st.data(), timed_out=st.booleans(), retry=st.sampled_from([None, Retry(3)]))
def test_exactly_the_rows_that_kill_fail(rows, data, timed_out, retry) -> None:
    killers = data.draw(st.sets(st.integers(0, rows - 1), max_size=4))
    suspects, deaths = Suspects(), 0
    while True:
        failed: set[int] = set()
        try:
            answer(0, rows, killers, suspects, failed)
            break
        except DeadError as dead:
            deaths += 1
            suspects.died(dead.call, "died", timed_out=timed_out, retry=retry)
    assert failed == killers
    tries = 3 if retry else 1 if timed_out else CRASHES_A_CALL
    assert deaths <= tries * (len(killers) + 1) + len(killers) * (math.ceil(math.log2(rows)) + 1) * (killers != set())


def test_a_crash_may_have_come_from_outside_so_the_call_is_made_once_more() -> None:
    suspects, row = Suspects(), Call(0, 3, 0, 1)
    assert suspects.died(row, "killed") is None
    sentence = suspects.died(row, "killed again")
    assert sentence is not None
    error = sentence.error()
    assert isinstance(error, RowCrash)
    assert (str(error), error.attempt) == ("killed again", 2)


def test_a_hang_is_made_again_only_where_a_retry_wants_it() -> None:
    row = Call(0, 3, 0, 1)
    assert Suspects().died(row, "hung", timed_out=True) is not None
    assert Suspects().died(row, "hung", timed_out=True, retry=Retry(2)) is None
    assert Suspects().died(row, "hung", timed_out=True, retry=Retry(2, on=ConnectionError)) is not None
    again = Suspects()
    again.died(row, "hung", timed_out=True, retry=Retry(2))
    error = again.died(row, "hung", timed_out=True, retry=Retry(2)).error()
    assert isinstance(error, RowTimeout)
    assert error.attempt == 2
