"""Joining neighbouring blocks into one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.records.block import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.records.block import Block


def joined(blocks: Sequence[Block]) -> Block:
    """Return one block with the rows and the cover of blocks that follow each other; they have one schema.

    >>> from headrace.records.block import dense_block
    >>> a, b = (dense_block(pa.record_batch({"x": [i]}), split=0, first=i) for i in (0, 1))
    >>> joined([a, b]).end
    (2,)
    """
    if len(blocks) == 1:
        return blocks[0]
    dense = all(block.ordinals is None for block in blocks) and all(
        right.start[0] == left.start[0] + left.num_rows for left, right in pairwise(blocks)
    )
    return replace(
        blocks[0],
        origin=Origin.joined([block.origin for block in blocks]),
        batch=pa.concat_batches([block.batch for block in blocks]),
        end=blocks[-1].end,
        ordinals=None if dense else np.concatenate([block.ordinal_array() for block in blocks]),
        failures=tuple(failure for block in blocks for failure in block.failures),
        errors=sum(block.errors for block in blocks),
    )
