"""Functions that are called again: each attempt gets the row as it was, and children come once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.attended import Attended
from headrace.errors import RowError
from headrace.model.attempts import Attempts
from headrace.plan.retry import Retry
from headrace.records.block import Block, Unit, dense_block


def attended(function, attempts: int = 3, **options) -> Attended:
    return Attended(function, attempts=Attempts(Retry(attempts, **options), pause=lambda secs: None))


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


class Notes:
    def __init__(self) -> None:
        self.begun: list[tuple[int, int, int, int]] = []

    def begin(self, *call: int) -> None:
        self.begun.append(call)

    def end(self) -> None:
        pass

    resume = end


def test_calls_are_noted_with_the_row_that_they_are_for() -> None:
    notes = Notes()
    function = Attended(lambda row: row, calls=notes, step=2)
    function.enter(dense_block(pa.record_batch({"x": [1, 2]}), split=0, first=40), afresh=True)
    assert [function({"x": x}) for x in (1, 2)] == [{"x": 1}, {"x": 2}]
    assert notes.begun == [(2, 40, 0, 1), (2, 41, 0, 1)]


def test_children_of_one_row_are_told_apart_across_the_pieces_of_a_block() -> None:
    notes = Notes()
    function = Attended(lambda row: row, calls=notes)

    def piece(*ordinals: int) -> Block:
        batch = pa.record_batch({"x": list(ordinals)})
        return Block(batch=batch, unit=Unit(0), start=(0,), end=(99,), ordinals=np.array(ordinals))

    for block, afresh in ((piece(3, 3, 5), True), (piece(5, 5, 8), False), (piece(8), True)):
        function.enter(block, afresh=afresh)
        for x in block.batch.column("x").to_pylist():
            function({"x": x})
    assert [call[1:3] for call in notes.begun] == [(3, 0), (3, 1), (5, 0), (5, 1), (5, 2), (8, 0), (8, 0)]


def test_a_batch_is_noted_by_its_first_row_and_its_size() -> None:
    notes = Notes()
    function = Attended(lambda batch: batch, calls=notes)
    function.enter(dense_block(pa.record_batch({"x": list(range(8))}), split=0, first=40), afresh=True)
    assert function.batch(4, 3, lambda: "answer", again=True) == "answer"
    assert notes.begun == [(0, 44, 0, 3)]
