"""Reordering: whatever the order of arrival, rows leave in the order of the input."""

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.order import Reorder
from headrace.records.block import Block, Unit
from headrace.records.position import END, START


def pieces_of(unit: Unit, cuts: list[int]) -> list[Block]:
    places = [START, *[(c,) for c in sorted(set(cuts))], END]
    return [
        Block(batch=pa.record_batch({"x": [unit.split]}), unit=unit, start=a, end=b)
        for a, b in itertools.pairwise(places)
    ]


@given(
    cuts=st.lists(st.lists(st.integers(1, 50), max_size=5), min_size=1, max_size=5),
    random=st.randoms(use_true_random=False),
)
def test_any_arrival_gives_the_order_of_the_input(cuts, random) -> None:
    units = [Unit(i) for i in range(len(cuts))]
    blocks = [b for unit, c in zip(units, cuts, strict=True) for b in pieces_of(unit, c)]
    arriving = list(blocks)
    random.shuffle(arriving)
    reorder = Reorder(units)
    out = [ready for block in arriving for ready in reorder.add(block)]
    assert [(b.unit, b.start) for b in out] == [(b.unit, b.start) for b in blocks]
    assert reorder.complete
    assert reorder.held_bytes == 0


def test_a_late_block_holds_back_those_behind_it_and_their_bytes_are_counted() -> None:
    first, second = pieces_of(Unit(0), [3])
    reorder = Reorder([Unit(0)])
    assert list(reorder.add(second)) == []
    assert reorder.held_bytes == second.nbytes
    assert list(reorder.add(first)) == [first, second]
