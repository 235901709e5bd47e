from __future__ import annotations

import pyarrow as pa

from headrace.engine.commit.done import Done, joined
from headrace.records.block import Unit, dense_block
from headrace.records.position import END, START


def test_units_before_the_frontier_are_done_and_later_ones_are_not() -> None:
    done = Done(frontier=(Unit(1), (5,)), ranges={Unit(2): ((START, END),)})
    assert [done.has_unit(Unit(i)) for i in range(4)] == [True, False, True, False]
    assert [done.first_missing(Unit(i)) for i in range(4)] == [END, (5,), END, START]


def test_a_unit_is_done_when_frontier_and_segments_meet() -> None:
    assert Done(frontier=(Unit(0), (5,)), ranges={Unit(0): (((5,), END),)}).has_unit(Unit(0))


def test_missing_leaves_the_gaps_between_finished_ranges() -> None:
    done = Done(frontier=(Unit(0), (2,)), ranges={Unit(0): (((4,), (6,)), ((9,), (20,)))})
    block = dense_block(pa.record_batch({"x": list(range(12))}), split=0, first=0)
    gaps = done.missing(block)
    assert [(g.start, g.end, g.batch.column(0).to_pylist()) for g in gaps] == [
        ((2,), (4,), [2, 3]),
        ((6,), (9,), [6, 7, 8]),
    ]
    later = dense_block(pa.record_batch({"x": [19, 20]}), split=0, first=19)
    assert [(g.start, g.end) for g in done.missing(later)] == [((20,), (21,))]


def test_half_of_a_row_s_children_count_for_nothing() -> None:
    assert joined([((3,), (4, 2))]) == (((3,), (4,)),)
    assert joined([((3, 1), (4, 2))]) == ()
    assert joined([((3,), (4, 2)), ((4, 2), (5,))]) == (((3,), (5,)),)
