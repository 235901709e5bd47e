"""Rows so large that one alone is more than a queue should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.records.plain import array_of_numbers

if TYPE_CHECKING:
    from headrace.records.block import Block

GIANT_BYTES = 32 * 2**20


def giants_apart(block: Block, giant_bytes: int = GIANT_BYTES) -> list[Block]:
    """Cut a block so that each giant row stands alone, and what is beside one does not keep its bytes in memory.

    >>> import pyarrow as pa
    >>> from headrace.records.block import dense_block
    >>> block = dense_block(pa.record_batch({"x": ["a", "b" * 100, "c", "d"]}), split=0, first=0)
    >>> [piece.num_rows for piece in giants_apart(block, giant_bytes=50)]
    [1, 1, 2]
    """
    if block.nbytes <= giant_bytes:
        return [block]
    rows = _giants(block, 0, block.num_rows, giant_bytes)
    edges = sorted({edge for row in rows for edge in (row, row + 1)} - {0, block.num_rows})
    pieces = block.cut(edges)
    return [piece if piece.nbytes > giant_bytes else _copied(piece) for piece in pieces] if rows else [block]


def _giants(block: Block, first: int, last: int, giant_bytes: int) -> list[int]:
    """Find giant rows by halves: the size of a slice is known without a look at its rows."""
    if block.batch.slice(first, last - first).nbytes <= giant_bytes:
        return []
    if last - first == 1:
        return [first]
    middle = (first + last) // 2
    return _giants(block, first, middle, giant_bytes) + _giants(block, middle, last, giant_bytes)


def _copied(block: Block) -> Block:
    return block.with_batch(block.batch.take(array_of_numbers(np.arange(block.num_rows))))
