"""Cutting front to back: places ascend, stay inside the block, and lose no failure."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.block import Block, Unit
from headrace.records.cutter import Cutter, Pieces
from headrace.records.failure import RowFailure


def fanned(ordinals: list[int]) -> Block:
    """Return a block with these parents, which ends behind the last of them."""
    return Block(
        batch=pa.record_batch({"x": list(range(len(ordinals)))}),
        unit=Unit(0),
        start=(0,),
        end=(max(ordinals) + 1,),
        ordinals=np.array(ordinals, dtype=np.int64),
        failures=tuple(
            RowFailure(stage="s", ordinal=o, row="{}", error_type="E", message="") for o in sorted(set(ordinals))
        ),
    )


def test_between_input_rows_the_place_is_the_row() -> None:
    cutter = Cutter(fanned([0, 1, 2]))
    assert [cutter.before_row(row) for row in (1, 2)] == [(1,), (2,)]


def test_among_the_children_of_a_row_places_are_numbered() -> None:
    cutter = Cutter(fanned([4, 4, 4, 5]))
    assert [cutter.before_row(row) for row in (1, 2, 3)] == [(4, 1), (4, 2), (5,)]


@given(
    ordinals=st.lists(st.integers(0, 6), min_size=2, max_size=20).map(sorted),
    cuts=st.sets(st.integers(1, 19)),
)
def test_pieces_cover_the_block_without_a_gap_and_keep_its_rows_and_failures(ordinals, cuts) -> None:
    block = fanned(ordinals)
    rows = [0, *sorted(row for row in cuts if row < len(ordinals)), len(ordinals)]
    pieces = Pieces(block)
    out = [
        pieces.piece(block.batch.slice(a, b - a), block.ordinals[a:b], (), before=b)
        for a, b in itertools.pairwise(rows)
    ]
    assert out[0].start == block.start
    assert out[-1].end == block.end
    for left, right in itertools.pairwise(out):
        assert left.end == right.start
        assert left.start < left.end
    assert [x for piece in out for x in piece.batch["x"].to_pylist()] == block.batch["x"].to_pylist()
    assert sorted(f.ordinal for piece in out for f in piece.failures) == sorted(set(ordinals))


def test_errors_are_counted_with_the_first_piece() -> None:
    block = fanned([0, 1]).derive(pa.record_batch({"x": [0, 1]}), None, errors=2)
    pieces = Pieces(block)
    batch = block.batch
    first = pieces.piece(batch.slice(0, 1), None, (), before=1)
    last = pieces.piece(batch.slice(1, 1), None, (), before=None)
    assert (first.errors, last.errors) == (2, 0)
