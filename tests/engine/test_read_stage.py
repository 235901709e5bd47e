"""The last block of a split covers it up to its end."""

import pyarrow as pa

from headrace.engine.read_stage import up_to_end
from headrace.records.block import dense_block
from headrace.records.position import END, START


def blocks(count: int):
    return [dense_block(pa.record_batch({"x": [i]}), split=0, first=i) for i in range(count)]


def test_only_the_last_block_reaches_the_end() -> None:
    assert [b.end for b in up_to_end(blocks(3))] == [(1,), (2,), END]


def test_a_split_without_blocks_is_covered_by_one_without_rows() -> None:
    (only,) = up_to_end([])
    assert (only.start, only.end, only.num_rows) == (START, END, 0)
