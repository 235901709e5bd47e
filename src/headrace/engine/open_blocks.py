"""Blocks whose rows are in a batcher: batches take rows out of them, and answers find the way back to their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.engine.failing import placed, where
from headrace.engine.predict import model_columns
from headrace.engine.user_batches import with_column
from headrace.records.cutter import Pieces
from headrace.records.plain import array_of_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.engine.gathering import Gathering
    from headrace.engine.recall import Recall
    from headrace.model.batch import Batch, Piece
    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure


@dataclass(slots=True)
class _Open:
    block: Block
    pieces: Pieces
    rows: int
    """How many of its rows are in the batcher."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a batch has of one block."""

    source: int
    rows: range | NDArray[np.int64]
    piece: Block
    """The rows; a piece of the block's cover where they go on at once."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch to be answered."""

    shares: list[Share]
    weight: float
    key: str | None
    """Which of several models answers it."""

    def place_of(self, failure: RowFailure) -> str:
        """Say where a failed row comes from; its ordinal is its number in the batch."""
        first = 0
        for share in self.shares:
            if failure.ordinal < first + share.piece.num_rows:
                return where(share.piece, failure.ordinal - first)
            first += share.piece.num_rows
        raise AssertionError(failure)


class OpenBlocks:
    """Keeps blocks by number until all their rows are in batches. Not locked."""

    def __init__(self, spec: InferenceSpec, recall: Recall | Gathering | None) -> None:
        """`recall` takes answers that come out of order; None: none do."""
        self._spec, self._recall = spec, recall
        self._open: dict[int, _Open] = {}

    def add(self, number: int, block: Block) -> None:
        """Take a block in."""
        self._open[number] = _Open(block, Pieces(block), block.num_rows)

    def cut(self, batch: Batch) -> Cut:
        """Take the rows of a batch out of their blocks."""
        return Cut([self._share(piece) for piece in batch.pieces], batch.weight, batch.key)

    def settled(self, shares: Sequence[Share], answered: Block) -> Iterator[Block]:
        """Give every share its rows of the answered batch; yield what may go on now."""
        first = 0
        for share in shares:
            last = first + share.piece.num_rows
            failures = {f.ordinal - first: f for f in answered.failures if first <= f.ordinal < last}
            a, b, kept = first, last, None
            if answered.ordinals is not None:
                a, b = np.searchsorted(answered.ordinals, [first, last]).tolist()
            if b - a < last - first:
                kept = answered.ordinal_array()[a:b] - first
            answers = answered.batch.slice(a, b - a)
            if self._recall is not None:
                yield from self._recall.settle(share.source, share.rows, kept, answers, failures)
            else:
                yield _with_answers(share.piece, kept, answers, failures, errors=answered.errors if first == 0 else 0)
            first = last

    def _share(self, piece: Piece) -> Share:
        opened = self._open[piece.source]
        rows = _cut_off(opened, piece.rows) if self._recall is None else self._picked(opened.block, piece.rows)
        opened.rows -= len(piece.rows)
        if opened.rows == 0:
            del self._open[piece.source]
        return Share(piece.source, piece.rows, rows)

    def _picked(self, block: Block, rows: range | NDArray[np.int64]) -> Block:
        """Return some rows of a block, with the columns that the model reads; the whole block waits elsewhere."""
        batch, places = model_columns(block.batch, self._spec), np.asarray(rows)
        lie_together = isinstance(rows, range)
        picked = batch.slice(rows[0], len(rows)) if lie_together else batch.take(array_of_numbers(places))
        return replace(block, failures=(), errors=0).derive(picked, places)


def _cut_off(opened: _Open, rows: range | NDArray[np.int64]) -> Block:
    """Return the next rows of a block as a piece of its cover."""
    assert isinstance(rows, range)
    block, first, last = opened.block, rows.start, rows.stop
    ordinals = None if block.ordinals is None else block.ordinals[first:last]
    return opened.pieces.piece(block.batch.slice(first, last - first), ordinals, (), before=last)


def _with_answers(
    piece: Block,
    kept: NDArray[np.int64] | None,
    answers: pa.RecordBatch,
    failures: Mapping[int, RowFailure],
    *,
    errors: int,
) -> Block:
    """Return a piece with the answers to its rows, or to those `kept`, beside them."""
    rows = piece.batch if kept is None else piece.batch.take(array_of_numbers(kept))
    for name, column in zip(answers.schema.names, answers.columns, strict=True):
        rows = with_column(rows, name, column)
    placed_failures = [placed(failure, piece, row) for row, failure in failures.items()]
    return piece.derive(rows, kept, placed_failures, errors=errors)
