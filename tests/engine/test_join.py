"""Joining is the inverse of cutting: one block again, with the same rows, cover and failures."""

import pyarrow as pa
import pytest

from headrace.engine.join import joined
from headrace.records.block import Block, Unit, dense_block
from headrace.records.failure import RowFailure


def block(rows: int) -> Block:
    return dense_block(pa.record_batch({"x": list(range(rows))}), split=0, first=0)


def failure(ordinal: int) -> RowFailure:
    return RowFailure(stage="map", ordinal=ordinal, row="{}", error_type="ValueError", message="no")


def test_the_pieces_of_a_block_make_the_block_again() -> None:
    whole = block(5)
    again = joined(whole.cut([2, 3]))
    assert again.batch.equals(whole.batch)
    assert (again.start, again.end, again.ordinals) == (whole.start, whole.end, None)


def test_rows_keep_their_ordinals_where_some_are_missing_in_between() -> None:
    left, right = block(6).cut([3])
    thinned = left.derive(left.batch.slice(1, 2), [1, 2])
    assert joined([thinned, right]).ordinal_array().tolist() == [1, 2, 3, 4, 5]


def test_blocks_that_lost_their_last_rows_do_not_count_as_dense() -> None:
    left, right = block(6).cut([3])
    assert left.ordinals is None
    shorter = Block(batch=left.batch.slice(0, 2), unit=Unit(0), start=left.start, end=left.end)
    assert joined([shorter, right]).ordinal_array().tolist() == [0, 1, 3, 4, 5]


def test_failures_and_errors_add_up() -> None:
    left, right = block(4).cut([2])
    left = left.derive(left.batch, None, [failure(0)], errors=1)
    right = right.derive(right.batch, None, [failure(3)], errors=2)
    both = joined([left, right])
    assert [f.ordinal for f in both.failures] == [0, 3]
    assert both.errors == 3


def test_one_block_stays_as_it_is() -> None:
    alone = block(2)
    assert joined([alone]) is alone


def test_nothing_is_no_block() -> None:
    with pytest.raises(IndexError):
        joined([])
