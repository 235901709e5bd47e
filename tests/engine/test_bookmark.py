"""Bookmarks: wherever an iteration is left, going on gives the rows that are missing, and no others."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.bookmark import Cursor, Mark
from headrace.records.block import Block, Unit
from headrace.records.position import END, START


@st.composite
def inputs(draw):
    """Units of input rows, each with a number of children, cut into blocks at any place, also among one row's children."""
    blocks = []
    for number in range(draw(st.integers(1, 3))):
        children = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
        ordinals = [row for row, count in enumerate(children) for _ in range(count)]
        whole = Block(
            batch=pa.record_batch({"n": pa.array(range(len(ordinals)), pa.int64())}),
            unit=Unit(number),
            start=START,
            end=END,
            ordinals=pa.array(ordinals, pa.int64()).to_numpy(),
        )
        cuts = st.lists(st.integers(1, max(1, len(ordinals) - 1)), max_size=4)
        blocks += whole.cut(sorted({c for c in draw(cuts) if c < len(ordinals)}))
    return blocks


def rows_of(blocks: list[Block]) -> list[tuple[int, int, int]]:
    return [
        (block.unit.split, int(ordinal), n)
        for block in blocks
        for ordinal, n in zip(block.ordinal_array(), block.batch["n"].to_pylist(), strict=True)
    ]


def from_mark(blocks: list[Block], mark: Mark | None) -> list[Block]:
    """What the engine delivers of the same input behind a mark."""
    return blocks if mark is None else [piece for block in blocks for piece in mark.done().missing(block)]


@settings(deadline=None)
@given(blocks=inputs(), sizes=st.lists(st.integers(1, 5), min_size=1), ahead=st.integers(0, 3))
def test_left_and_gone_on_with_at_any_place_every_row_comes_once(blocks, sizes, ahead) -> None:
    expected, got, mark = rows_of(blocks), [], None
    for size in sizes:
        cursor, waiting = Cursor(mark), []
        rest = iter(from_mark(blocks, mark))
        while len(waiting) < size and (block := next(rest, None)) is not None:
            waiting += rows_of([cursor.feed(block)])
        for block in [block for block, _ in zip(rest, range(ahead), strict=False)]:
            cursor.feed(block)  # blocks that were taken in and not handed out change nothing
        cursor.advance(len(waiting[:size]))
        got += waiting[:size]
        mark = cursor.mark()
        assert cursor.mark() == mark
    cursor = Cursor(mark)
    got += rows_of([cursor.feed(block) for block in from_mark(blocks, mark)])
    assert got == expected


def test_before_the_first_row_there_is_no_place() -> None:
    cursor = Cursor()
    cursor.feed(replace(Block(batch=pa.record_batch({"n": [1]}), unit=Unit(0), start=START, end=END)))
    assert cursor.mark() is None
