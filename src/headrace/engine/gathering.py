"""Gathering: answers come in any order, and every block goes on front to back.

A block waits here until its rows are answered; its front goes on, as a piece of its cover, as soon as it is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from headrace.engine.failing import placed
from headrace.engine.task import StepCounts
from headrace.engine.user_batches import with_column
from headrace.records.columns import joined_column
from headrace.records.cutter import Pieces
from headrace.records.plain import array_of_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure

UNKNOWN, FAILED = -1, -2


@dataclass(slots=True, eq=False)
class Gathered:
    """A block of which some rows are not answered yet."""

    number: int
    block: Block
    pieces: Pieces
    part: NDArray[np.int64]
    """For each row, which of `parts` has its answer; or UNKNOWN, FAILED."""
    row: NDArray[np.int64]
    """For each row, which row of its part that is."""
    parts: dict[int, pa.RecordBatch] = field(default_factory=dict)
    """Answers of which some have not gone on yet."""
    unsent: dict[int, int] = field(default_factory=dict)
    """How many of a part's answers those are."""
    numbered: int = 0
    """Parts so far."""
    failures: dict[int, RowFailure] = field(default_factory=dict)
    sent: int = 0
    """Rows at the front that have gone on."""

    @classmethod
    def of(cls, number: int, block: Block) -> Self:
        """Begin with a block; `number` is its name."""
        rows = block.num_rows
        return cls(number, block, Pieces(block), np.full(rows, UNKNOWN), np.zeros(rows, dtype=np.int64))

    def answer(self, rows: NDArray[np.int64], answers: pa.RecordBatch) -> None:
        """Note the answers to rows."""
        if len(rows):
            self.part[rows], self.row[rows] = self.numbered, np.arange(len(rows))
            self.parts[self.numbered], self.unsent[self.numbered] = answers, len(rows)
            self.numbered += 1

    def known_to(self) -> int:
        """Return the row up to which all are known; looks no further than it has to."""
        at, step = self.sent, 256
        while at < len(self.part):
            unknown = np.flatnonzero(self.part[at : at + step] == UNKNOWN)
            if len(unknown):
                return at + int(unknown[0])
            at, step = at + step, 2 * step
        return len(self.part)

    def columns(self, rows: NDArray[np.int64], count: int) -> list[pa.Array]:
        """Return the answers to rows, null where one failed, in `count` columns; each is asked for once."""
        part, row = self.part[rows], self.row[rows]
        good = np.flatnonzero(part >= 0)
        if not len(good):
            return [pa.nulls(len(rows))] * count
        by_part = good[np.argsort(part[good], kind="stable")]
        used, begins = np.unique(part[by_part], return_index=True)
        taken = [
            self._take(number, row[some])
            for number, some in zip(used.tolist(), np.split(by_part, begins[1:]), strict=True)
        ]
        columns = [joined_column([answers.column(i) for answers in taken]) for i in range(count)]
        if np.array_equal(by_part, np.arange(len(rows))):
            return columns
        places = np.zeros(len(rows), dtype=np.int64)
        places[by_part] = np.arange(len(by_part))
        indices = array_of_numbers(places) if len(good) == len(rows) else pa.array(places, mask=part < 0)
        return [column.take(indices) for column in columns]

    def _take(self, number: int, rows: NDArray[np.int64]) -> pa.RecordBatch:
        """Return rows of a part, without a copy where they lie together, and let the part go once all are sent."""
        answers, first, count = self.parts[number], int(rows[0]), len(rows)
        self.unsent[number] -= count
        if not self.unsent[number]:
            del self.parts[number], self.unsent[number]
        if np.array_equal(rows, np.arange(first, first + count)):
            return answers.slice(first, count)
        return answers.take(array_of_numbers(rows))


class Gathering:
    """Holds blocks until their rows are answered. `admit` is called by one thread at a time, `settle` by any."""

    def __init__(self, spec: InferenceSpec, *, nulls: bool) -> None:
        self._spec, self._nulls = spec, nulls
        output = [spec.output] if isinstance(spec.output, str) else list(spec.output.values())
        self.names = output if spec.model_id_column is None else [*output, spec.model_id_column]
        """The columns that answers have."""
        self.counts = StepCounts()
        self.held_bytes = 0
        """Bytes of blocks that wait for answers."""
        self._lock = threading.Lock()
        self._waiting: dict[int, Gathered] = {}

    def admit(self, number: int, block: Block) -> tuple[Block, list[Block]]:
        """Take a block; return what of it the model has to be asked about (all), and what may go on (nothing)."""
        self.enter(Gathered.of(number, block))
        return replace(block, failures=(), errors=0), []

    def settle(
        self,
        number: int,
        rows: range | NDArray[np.int64],
        kept: NDArray[np.int64] | None,
        answers: pa.RecordBatch,
        failures: Mapping[int, RowFailure],
    ) -> list[Block]:
        """Take the model's answers to rows of a block; return the pieces that may go on now.

        `kept` names those of `rows` that `answers` is to (None: all), `failures` has the others.
        """
        waiting, places = self._waiting[number], np.asarray(rows)
        answered = places if kept is None else places[kept]
        failed = {(waiting, int(places[i])): failure for i, failure in failures.items()}
        return self.mark([(waiting, answered, answers)], failed)

    def enter(self, waiting: Gathered) -> None:
        """Hold a block from here on."""
        with self._lock:
            self._waiting[waiting.number] = waiting
            self.held_bytes += waiting.block.nbytes

    def waiting(self, number: int) -> Gathered:
        """Return a block that waits."""
        return self._waiting[number]

    def mark(
        self,
        answered: Sequence[tuple[Gathered, NDArray[np.int64], pa.RecordBatch]],
        failed: Mapping[tuple[Gathered, int], RowFailure],
    ) -> list[Block]:
        """Note what became of rows, and return the pieces that may go on for it."""
        with self._lock:
            for waiting, rows, answers in answered:
                waiting.answer(rows, answers)
            for (waiting, row), failure in failed.items():
                waiting.part[row] = FAILED
                waiting.failures[row] = placed(failure, waiting.block, row)
            touched = dict.fromkeys([*(waiting for waiting, _, _ in answered), *(waiting for waiting, _ in failed)])
            return [piece for waiting in touched for piece in self._advance(waiting)]

    def _advance(self, waiting: Gathered) -> Iterable[Block]:
        """Cut off the rows at a block's front that are known."""
        block, first, last = waiting.block, waiting.sent, waiting.known_to()
        if first == last:
            return ()
        waiting.sent = last
        if last == block.num_rows:
            del self._waiting[waiting.number]
            self.held_bytes -= block.nbytes
        failed = np.flatnonzero(waiting.part[first:last] == FAILED) + first
        failures, nulled = [waiting.failures[row] for row in failed.tolist()], 0
        batch, ordinals = block.batch.slice(first, last - first), block.ordinals
        rows = np.arange(first, last)
        if self._nulls:
            failures, nulled = [], len(failures)
        elif failures:
            rows = np.setdiff1d(rows, failed, assume_unique=True)
            batch, ordinals = batch.take(array_of_numbers(rows - first)), block.ordinal_array()
        for name, column in zip(self.names, self._columns(waiting, rows), strict=True):
            batch = with_column(batch, name, column)
        self.counts.rows_out += len(rows)
        self.counts.failed += len(failures)
        self.counts.with_error += nulled
        ordinals = None if ordinals is None else ordinals[rows]
        return (waiting.pieces.piece(batch, ordinals, failures, before=last, errors=nulled),)

    def _columns(self, waiting: Gathered, rows: NDArray[np.int64]) -> list[pa.Array]:
        """Return the answers to rows; those that failed too say which model they were put to."""
        columns = waiting.columns(rows, len(self.names))
        if self._spec.model_id_column is not None and columns[-1].null_count:
            failed = {row: waiting.failures[row].model_id for row in rows.tolist() if row in waiting.failures}
            ids = [
                id_ or failed.get(row) or self._spec.handler.model_id
                for row, id_ in zip(rows.tolist(), columns[-1].to_pylist(), strict=True)
            ]
            columns[-1] = pa.array(ids, pa.string()).dictionary_encode()
        return columns
