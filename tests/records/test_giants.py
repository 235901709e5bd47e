from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.block import dense_block
from headrace.records.giants import giants_apart


@given(sizes=st.lists(st.integers(0, 300), max_size=12))
def test_giants_stand_alone_and_nothing_is_lost(sizes: list[int]) -> None:
    block = dense_block(pa.record_batch({"text": pa.array(["x" * n for n in sizes], pa.string())}), split=0, first=3)
    pieces = giants_apart(block, giant_bytes=100)
    assert pieces[0].start == block.start
    assert [p.end for p in pieces[:-1]] == [p.start for p in pieces[1:]]
    assert pieces[-1].end == block.end
    assert [text for p in pieces for text in p.batch.column(0).to_pylist()] == ["x" * n for n in sizes]
    if block.nbytes > 100:
        for piece in pieces:
            large = [n for n in map(len, piece.batch.column(0).to_pylist()) if n > 100]
            assert not large or piece.num_rows == 1


def test_rows_beside_a_giant_do_not_keep_it_in_memory() -> None:
    block = dense_block(pa.record_batch({"text": ["a", "b" * 1000, "c"]}), split=0, first=0)
    small, giant, _ = giants_apart(block, giant_bytes=100)
    assert giant.num_rows == 1
    assert small.batch.get_total_buffer_size() < 200
