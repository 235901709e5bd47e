from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.block import Block, Origin, Unit, dense_block
from headrace.records.failure import RowFailure
from headrace.records.position import END


def failure(ordinal):
    return RowFailure(stage="map_1", ordinal=ordinal, row="{}", error_type="ValueError", message="no")


def block_of(ordinals, start, end, failed=(), errors=0):
    """A block whose rows say in a column which they are, so that none can go astray."""
    batch = pa.record_batch({"row": pa.array(range(len(ordinals)), pa.int64())})
    return Block(
        batch=batch,
        unit=Unit(3),
        start=start,
        end=end,
        ordinals=np.array(ordinals, dtype=np.int64),
        failures=tuple(failure(n) for n in failed),
        errors=errors,
    )


@st.composite
def blocks(draw):
    """Blocks after filters and fan-outs: ordinals with gaps and repeats, failures anywhere in the cover."""
    first = draw(st.integers(0, 20))
    length = draw(st.integers(1, 20))
    if draw(st.booleans()):
        batch = pa.record_batch({"row": pa.array(range(length), pa.int64())})
        block = dense_block(batch, split=3, first=first)
    else:
        ordinals = sorted(draw(st.lists(st.integers(first, first + length - 1), max_size=30)))
        block = block_of(ordinals, (first,), (first + length,))
    failed = draw(st.lists(st.integers(first, first + length - 1), max_size=4))
    block = replace(block, failures=tuple(map(failure, failed)), errors=draw(st.integers(0, 3)))
    return replace(block, end=END) if draw(st.booleans()) else block


def places(block):
    if block.num_rows < 2:
        return st.just([])
    return st.lists(st.integers(1, block.num_rows - 1), unique=True, max_size=6).map(sorted)


def assert_same_altogether(pieces, block):
    """What every cut keeps: cover without a gap, rows with their identity, failures once, errors."""
    assert (pieces[0].start, pieces[-1].end) == (block.start, block.end)
    assert all(left.end == right.start for left, right in pairwise(pieces))
    assert all(piece.start < piece.end for piece in pieces)
    rows = [(r, o) for p in pieces for r, o in zip(p.batch.column("row").to_pylist(), p.ordinal_array(), strict=True)]
    assert rows == list(zip(block.batch.column("row").to_pylist(), block.ordinal_array(), strict=True))
    by_ordinal = sorted(f.ordinal for p in pieces for f in p.failures)
    assert by_ordinal == sorted(f.ordinal for f in block.failures)
    assert sum(p.errors for p in pieces) == block.errors
    assert {(p.unit, p.origin) for p in pieces} == {(block.unit, block.origin)}


def assert_rows_lie_in_the_cover(piece):
    for ordinal in piece.ordinal_array():
        assert piece.start[0] <= ordinal
        assert (ordinal,) < piece.end


@given(st.data())
def test_cut_keeps_everything_however_often(data):
    block = data.draw(blocks())
    pieces = [block]
    for _ in range(3):
        pieces = [part for piece in pieces for part in piece.cut(data.draw(places(piece)))]
    assert_same_altogether(pieces, block)
    for piece in pieces:
        assert_rows_lie_in_the_cover(piece)


@given(st.data())
def test_cut_happens_where_it_was_asked_for(data):
    block = data.draw(blocks())
    rows = data.draw(places(block))
    sizes = [piece.num_rows for piece in block.cut(rows)]
    assert sizes == [b - a for a, b in zip([0, *rows], [*rows, block.num_rows], strict=True)]


@given(blocks(), st.integers(1, 200))
def test_cut_by_bytes_keeps_everything(block, target_bytes):
    pieces = block.cut_by_bytes(target_bytes)
    assert_same_altogether(pieces, block)
    assert len(pieces) <= max(1, block.num_rows)


def test_cut_by_bytes_makes_pieces_of_about_the_size_asked_for():
    block = dense_block(pa.record_batch({"row": np.arange(10_000)}), split=0, first=0)
    pieces = block.cut_by_bytes(8_000)
    assert len(pieces) == 10
    assert {piece.num_rows for piece in pieces} == {1_000}
    assert all(piece.ordinals is None for piece in pieces)


def test_a_cut_between_the_children_of_one_row_lies_inside_that_row():
    block = block_of([5, 5, 5, 6], (0,), (9,))
    assert [p.start for p in block.cut([1, 2, 3])] == [(0,), (5, 1), (5, 2), (6,)]


def test_a_cut_works_for_rows_in_any_order():
    block = block_of([4, 2, 3, 2], (0,), (9,))  # what a function over batches may make of its rows
    assert_same_altogether(block.cut([1, 2, 3]), block)


@given(st.data())
def test_clips_that_adjoin_keep_everything(data):
    block = data.draw(blocks())
    low, high = block.start[0], min(block.end[0], block.start[0] + 25)
    marks = sorted(data.draw(st.sets(st.integers(low + 1, high - 1), max_size=4)) if high - low > 1 else set())
    bounds = [block.start, *((m,) for m in marks), block.end]
    clips = [block.clip(a, b) for a, b in pairwise(bounds)]
    assert_same_altogether(clips, replace(block, errors=sum(c.errors for c in clips)))
    for clip in clips:
        assert_rows_lie_in_the_cover(clip)


def test_a_clip_that_takes_all_is_the_block_itself():
    block = block_of([1, 2], (0,), (5,))
    assert block.clip((0,), (9,)) is block


def test_a_clip_outside_is_nothing():
    block = block_of([1, 2], (0,), (5,))
    assert block.clip((5,), (9,)) is None


def test_the_clip_of_a_dense_block_is_dense():
    block = dense_block(pa.record_batch({"row": range(10)}), split=0, first=100)
    clip = block.clip((103,), (105,))
    assert (clip.ordinals, clip.start, clip.end) == (None, (103,), (105,))
    assert clip.batch.column("row").to_pylist() == [3, 4]


@given(st.data())
def test_derive_keeps_cover_and_identity_through_nested_fan_out(data):
    block = data.draw(blocks())
    for _ in range(2):
        rows = st.lists(st.integers(0, block.num_rows - 1), max_size=20) if block.num_rows else st.just([])
        parents = np.array(sorted(data.draw(rows)), dtype=np.int64)
        ordinals = block.ordinal_array()
        derived = block.derive(
            block.batch.take(pa.array(parents)), parents, failures=[failure(block.start[0])], errors=1
        )
        assert (derived.start, derived.end, derived.unit) == (block.start, block.end, block.unit)
        assert derived.ordinal_array().tolist() == ordinals[parents].tolist()
        assert len(derived.failures) == len(block.failures) + 1
        assert derived.errors == block.errors + 1
        pieces = derived.cut(data.draw(places(derived)))
        assert_same_altogether(pieces, derived)
        block = data.draw(st.sampled_from(pieces))


def test_derive_row_for_row_stays_dense():
    block = dense_block(pa.record_batch({"row": [1, 2]}), split=0, first=7)
    derived = block.derive(pa.record_batch({"y": [3, 4]}), None)
    assert derived.ordinals is None
    assert derived.ordinal_array().tolist() == [7, 8]
    assert [derived.ordinal_of(i) for i in range(2)] == [7, 8]


def test_derive_row_for_row_refuses_another_number_of_rows():
    block = dense_block(pa.record_batch({"row": [1, 2]}), split=0, first=7)
    with pytest.raises(AssertionError):
        block.derive(pa.record_batch({"y": [3]}), None)
    with pytest.raises(AssertionError):
        block.with_batch(pa.record_batch({"y": [3]}))


def test_an_empty_block_still_weighs_something():
    assert block_of([], (0,), (3,)).nbytes == 1


def test_units_compare_in_the_order_of_the_input():
    assert sorted([Unit(1), Unit(0, (1,)), Unit(0, (0,)), Unit(0)]) == [Unit(0), Unit(0, (0,)), Unit(0, (1,)), Unit(1)]


def test_rows_are_named_within_their_file():
    assert Origin("b.csv", base=100).place_of(103) == ("b.csv", 3)


def test_an_origin_of_many_files_names_the_file_of_each_row() -> None:
    origin = Origin.joined([Origin("a", 0), Origin("empty", 3), Origin("b", 3), Origin("b", 3), Origin("c", 9)])
    assert [origin.place_of(i) for i in (0, 2, 3, 8, 9, 20)] == [
        ("a", 0), ("a", 2), ("b", 0), ("b", 5), ("c", 0), ("c", 11),
    ]  # fmt: skip
    part = origin.clip(4, 8)
    assert part == Origin("b", 3)
    assert origin.clip(2, 3).place_of(2) == ("a", 2)
    assert Origin.joined([Origin("a"), None]) is None
