"""The step in front of a model that makes its inputs ready: as many rows at a time as make blocks of a useful size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.step_runner import StepRunner
from headrace.engine.user_batches import with_column
from headrace.errors import HeadraceError
from headrace.records.columns import joined_column, to_rows
from headrace.records.cutter import Pieces
from headrace.records.plain import array_of_numbers
from headrace.records.private import PREPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.records.block import Block

FIRST_ROWS = 16
"""Rows prepared at once before it is known how large that makes them."""
MOST_ROWS = 1024
"""Rows prepared at once: the model waits for the first of them, and workers share the work by blocks."""
TARGET_BYTES = 8 * 2**20
"""Prepared inputs a block, about: pictures grow to many times the size of their files."""


class PrepareRunner(StepRunner):
    """Adds the column of prepared inputs; a batch that fails is halved until the rows to blame stand alone."""

    _at_once = FIRST_ROWS

    def run(self, block: Block) -> Iterator[Block]:
        pieces, first = Pieces(block), 0
        while first < block.num_rows:
            count = min(self._at_once, block.num_rows - first)
            errors: dict[int, Exception] = {}
            column = joined_column(self._prepared(block, first, count, errors))
            yield self._piece(block, pieces, first, column, errors)
            fitting = TARGET_BYTES * count // max(1, column.nbytes)
            self._at_once = max(1, min(MOST_ROWS, 4 * self._at_once, fitting))
            first += count

    def empty(self, block: Block) -> Block:
        return block

    def _attended(self) -> Callable[..., Any]:
        return self._made  # batches are attended as a whole, below

    def _prepared(
        self, block: Block, first: int, count: int, errors: dict[int, Exception], *, part: bool = False
    ) -> list[pa.Array]:
        """Prepare rows `[first, first + count)`; parts of a batch that failed are tried once, until a row stands alone.

        What befell a row stands in `errors`, and null in its place.
        """
        rows = block.batch.slice(first, count)
        prepare = partial(self.function, rows, step=self.step.name)
        try:
            column, failures = self.attended.batch(first, count, prepare, again=count == 1 or not part)
        except HeadraceError:
            raise
        except Exception as error:
            if count == 1:
                errors[first] = error
                return [pa.nulls(1)]
        else:
            errors.update((first + row, error) for row, error in failures.items())
            return [column]
        half = count // 2
        left = self._prepared(block, first, half, errors, part=True)
        return left + self._prepared(block, first + half, count - half, errors, part=True)

    def _piece(self, block: Block, pieces: Pieces, first: int, column: pa.Array, errors: dict[int, Exception]) -> Block:
        """Make the next piece, without the rows that failed; under on_error="null" the model's stage nulls them."""
        count = len(column)
        batch = with_column(block.batch.slice(first, count), PREPARED, column)
        ordinals = None if block.ordinals is None else block.ordinals[first : first + count]
        failures = []
        if self.on_error != "null" and errors:
            for failed, (row, error) in enumerate(errors.items(), 1):
                values = to_rows(block.batch.slice(row, 1))[0]
                failures.append(self.failure(block, row, error, values, sound=row + 1 - failed))
            kept = np.setdiff1d(np.arange(count), np.array(list(errors)) - first, assume_unique=True)
            batch = batch.take(array_of_numbers(kept))
            ordinals = block.ordinal_array()[first + kept]
        return pieces.piece(batch, ordinals, failures, before=first + count)
