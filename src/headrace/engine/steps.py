"""Running steps over blocks: the task of every CPU stage, in threads and worker processes alike."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.engine.pace import paced
from headrace.engine.prepare import PrepareRunner
from headrace.engine.step_runner import StepRunner
from headrace.engine.user_batches import Rows, from_user, names_in, to_user, with_column
from headrace.engine.weighing import TARGET_BLOCK_BYTES, WEIGHED_ROWS, Weigher
from headrace.errors import HeadraceError, RowError, StageError
from headrace.model.calls import TimedCalls
from headrace.records.columns import to_column, to_rows
from headrace.records.cutter import Pieces
from headrace.records.first_rows import HOPELESS_ROWS, FirstRows
from headrace.records.plain import array_of_numbers
from headrace.records.types import TypeQuarrelError, concatenated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.engine.task import StepCounts
    from headrace.model.calls import Calls
    from headrace.plan.steps import OnError, Step
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure

FIRST_FANOUT_ROWS = 16
"""Children collected before they are weighed for the first time."""

MOST_FANOUT_ROWS = 65_536
"""Children collected at most: as Python objects small rows take up to twenty times the memory of their columns."""


class StepChain:
    """Fused steps, run one after another over each block. Implements `Task`."""

    def __init__(
        self,
        steps: Sequence[Step],
        on_error: OnError,
        *,
        hopeless_rows: float = HOPELESS_ROWS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause` waits so many seconds between attempts, and raises where the run is being stopped."""
        self._steps = tuple(steps)
        self._on_error = on_error
        self._hopeless_rows = hopeless_rows
        self._pause = pause
        self._calls: Calls | None = None
        self._runners: list[StepRunner] = []
        self._opened = ExitStack()

    def attend(self, calls: Calls) -> None:
        """Have `calls` told of each call, from `open()` on."""
        self._calls = calls

    def open(self) -> None:
        """Make the functions, calling `setup()` where classes have it."""
        limits = {i: step.timeout_secs for i, step in enumerate(self._steps) if step.timeout_secs is not None}
        if limits and self._calls is None:
            self._calls = TimedCalls(limits)
        for number, step in enumerate(self._steps):
            on_error = step.on_error or self._on_error
            first = FirstRows(enough=self._hopeless_rows)
            runner = _RUNNERS[step.kind](
                step, on_error, number=number, first_rows=first, calls=self._calls, pause=self._pause
            )
            self._runners.append(runner)
            self._opened.callback(runner.close)

    def process(self, block: Block) -> Iterator[Block]:
        """Run the block through all steps."""
        for runner in self._runners:
            runner.afresh = True
        return self._from(0, block)

    def overdue(self, now: float) -> tuple[str, float] | None:
        """Return the step whose call takes too long in this process, and how long it may take."""
        call = self._calls.overdue(now) if isinstance(self._calls, TimedCalls) else None
        if call is None:
            return None
        step = self._steps[call.step]
        assert step.timeout_secs is not None
        return step.name, step.timeout_secs

    def counts(self) -> Mapping[str, StepCounts]:
        """Return the counts by step name."""
        return {runner.step.name: runner.counts for runner in self._runners}

    def close(self) -> None:
        """Call `close()` where classes have it, of the last step first, also where others fail to close."""
        self._opened.close()

    def _from(self, index: int, block: Block) -> Iterator[Block]:
        if index == len(self._runners):
            yield block
            return
        pieces = self._runners[index].counted(block)
        del block  # it may be large, and is kept by nobody but whoever works on it
        for piece in pieces:
            following = self._from(index + 1, piece)
            del piece
            yield from following


class _Columns(StepRunner):
    """Headrace's own column functions: cheap, and right for empty batches too."""

    def _attended(self) -> Callable[..., Any]:
        return self._made

    def run(self, block: Block) -> Iterator[Block]:
        yield block.with_batch(self.function(block.batch))

    def empty(self, block: Block) -> Block:
        if not block.batch.schema.names:
            return block
        return block.with_batch(self.function(block.batch))


class _Map(StepRunner):
    def run(self, block: Block) -> Iterator[Block]:
        rows, pieces, weigher, failed = Rows(block.batch), Pieces(block), Weigher(), 0
        names = set(block.batch.schema.names)
        result: Any = None
        for run in paced(enumerate(rows.dicts())):
            out: list[Mapping[str, Any]] = []
            parents: list[int] = []
            failures: list[RowFailure] = []
            nulled = 0
            for i, row in run:
                if weigher.due(len(out)) and weigher.full(len(out), row_bytes=_weight(rows, out, parents)):
                    yield self._piece(block, pieces, rows.batch_of(out, parents), parents, failures, nulled, before=i)
                    out, parents, failures, nulled = [], [], [], 0
                try:
                    result = self.function(row)
                    if not isinstance(result, dict):
                        raise _not_a_row(self.step, result)
                    if not names.issuperset(result):
                        names.update(names_in(result))
                except HeadraceError:
                    raise
                except Exception as error:
                    if self.on_error != "null":
                        failed += 1
                        failures.append(self.failure(block, i, error, rows.dict_of(i), sound=i + 1 - failed))
                        continue
                    nulled += 1
                    result = rows.dict_of(i)
                out.append(result)
                parents.append(i)
            batch = rows.batch_of(out, parents)
            waiting = [self._piece(block, pieces, batch, parents, failures, nulled, before=i + 1)]
            if i + 1 < block.num_rows:
                yield waiting.pop()
        # Rows may be large, and are done with.
        del block, pieces, rows, run, row, result, out, batch
        yield waiting.pop()

    def _piece(
        self,
        block: Block,
        pieces: Pieces,
        batch: pa.RecordBatch,
        parents: list[int],
        failures: list[RowFailure],
        nulled: int,
        *,
        before: int,
    ) -> Block:
        self.counts.with_error += nulled
        kept = _ordinals(block, parents, one_for_one=not failures)
        return pieces.piece(batch, kept, failures, before=before, errors=nulled)


class _AddColumn(StepRunner):
    """One more column; all others stay as they are, untouched."""

    def run(self, block: Block) -> Iterator[Block]:
        rows, pieces, failed = Rows(block.batch), Pieces(block), 0
        for run in paced(enumerate(rows.dicts())):
            values: list[Any] = []
            parents: list[int] = []
            failures: list[RowFailure] = []
            nulled = 0
            for i, row in run:
                try:
                    value = self.function(row)
                    if isinstance(value, RowError):
                        raise value
                except Exception as error:
                    if self.on_error != "null":
                        failed += 1
                        failures.append(self.failure(block, i, error, rows.dict_of(i), sound=i + 1 - failed))
                        continue
                    nulled += 1
                    value = None
                values.append(value)
                parents.append(i)
            self.counts.with_error += nulled
            batch = with_column(_taken(block, parents), dict(self.step.kwargs)["column"], to_column(values))
            kept = _ordinals(block, parents, one_for_one=not failures)
            yield pieces.piece(batch, kept, failures, before=i + 1, errors=nulled)

    def _make(self, step: Step) -> Callable[..., Any]:
        return step.function


class _Filter(StepRunner):
    def run(self, block: Block) -> Iterator[Block]:
        rows, pieces, failed = Rows(block.batch), Pieces(block), 0
        for run in paced(enumerate(rows.dicts())):
            keep: list[int] = []
            failures: list[RowFailure] = []
            filtered = 0
            for i, row in run:
                try:
                    if self.function(row):
                        keep.append(i)
                    else:
                        filtered += 1
                except Exception as error:
                    failed += 1
                    failures.append(self.failure(block, i, error, rows.dict_of(i), sound=i + 1 - failed))
            self.counts.filtered += filtered
            kept = _ordinals(block, keep, one_for_one=not failures and not filtered)
            yield pieces.piece(_taken(block, keep), kept, failures, before=i + 1)

    def empty(self, block: Block) -> Block:
        return block


class _FlatMap(StepRunner):
    """One row to many: children are collected into blocks of normal size while they come."""

    _limit = FIRST_FANOUT_ROWS
    """Children to collect before they are weighed; learnt from those weighed so far."""

    def _attended(self) -> Callable[..., Any]:
        return self.attended.children

    def run(self, block: Block) -> Iterator[Block]:
        rows, pieces, failed = Rows(block.batch), Pieces(block), 0
        ordinals = block.ordinal_array()
        names = set(block.batch.schema.names)
        for run in paced(enumerate(rows.dicts())):
            out: list[Mapping[str, Any]] = []
            parents: list[int] = []
            failures: list[RowFailure] = []
            for i, row in run:
                kept, sent = len(out), False
                try:
                    for child in self.function(row):
                        if not isinstance(child, dict):
                            raise _not_a_row(self.step, child)
                        if not names.issuperset(child):
                            names.update(names_in(child))
                        if len(out) >= self._limit and (batch := self._full(rows.batch_of(out, parents))) is not None:
                            yield pieces.inside(batch, ordinals[parents], failures, row=i)
                            sent = bool(parents) and parents[-1] == i
                            out, parents, failures, kept = [], [], [], 0
                        out.append(child)
                        parents.append(i)
                except HeadraceError:
                    raise
                except Exception as error:
                    # Children of this row that are still here go with it; those sent on already are in later hands.
                    del out[kept:], parents[kept:]
                    failed += 1
                    failure = self.failure(block, i, error, rows.dict_of(i), sound=i + 1 - failed)
                    failures.append(replace(failure, siblings=failure.siblings or sent))
            batch = rows.batch_of(out, parents) if out else self.nothing()
            yield pieces.piece(batch, ordinals[parents], failures, before=i + 1)

    def _full(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the batch if it is of normal size, else raise the limit towards that size."""
        if 2 * batch.nbytes >= TARGET_BLOCK_BYTES:
            return batch
        if batch.num_rows >= MOST_FANOUT_ROWS:
            return batch
        wanted = int(TARGET_BLOCK_BYTES * batch.num_rows / max(1, batch.nbytes))
        self._limit = min(MOST_FANOUT_ROWS, 4 * batch.num_rows, max(wanted, batch.num_rows + 1))
        return None


class _MapBatches(StepRunner):
    def run(self, block: Block) -> Iterator[Block]:
        size = self.step.batch_size or block.num_rows
        pieces = Pieces(block)
        ordinals = block.ordinals
        for first in range(0, block.num_rows, size):
            count = min(size, block.num_rows - first)
            batch, parents, failures = self._run_rows(block, first, count)
            kept: Any = None
            if parents is not None:
                kept = block.ordinal_array()[parents]
            elif ordinals is not None:
                kept = ordinals[first : first + count]
            piece = pieces.piece(batch, kept, failures, before=first + count)
            yield from piece.cut_by_bytes(TARGET_BLOCK_BYTES) if piece.nbytes > 2 * TARGET_BLOCK_BYTES else [piece]

    def _attended(self) -> Callable[..., Any]:
        return self._call  # batches are attended as a whole, below

    def _answer(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        batch = from_user(self.function(to_user(rows, self.step.batch_format)), like=rows.schema)
        if self.step.row_wise and batch.num_rows != rows.num_rows:
            raise RowError(f"returned {batch.num_rows} rows for {rows.num_rows}; a row-wise function returns one a row")
        return batch

    def _run_rows(
        self, block: Block, first: int, count: int, *, part: bool = False
    ) -> tuple[pa.RecordBatch, Any, list[RowFailure]]:
        """Run rows `[first, first + count)`; halve a failing batch where the step is declared row-wise.

        Parts of a batch that failed are tried once, until a row stands alone.
        """
        rows = block.batch.slice(first, count)
        try:
            again = count == 1 or not part
            batch = self.attended.batch(first, count, lambda: self._answer(rows), again=again)
        except HeadraceError:
            raise
        except Exception as error:
            if not self.step.row_wise or count == 1:
                failures = [
                    self.failure(block, i, error, to_rows(block.batch.slice(i, 1))[0], sound=0)
                    for i in range(first, first + count)
                ]
                return self.nothing(), np.array([], dtype=np.int64), failures
            half = count // 2
            left = self._run_rows(block, first, half, part=True)
            right = self._run_rows(block, first + half, count - half, part=True)
            try:
                return _joined(left, right, first, half, count)
            except TypeQuarrelError as quarrel:
                raise StageError(
                    f"step {self.step.name!r} returned column {quarrel.column!r} as {quarrel.left} for some rows and "
                    f"as {quarrel.right} for others; return one type"
                ) from quarrel
        self.sound += count
        if batch.num_rows == count:
            return batch, None, []
        # Which row made which cannot be known: all answer for the first, and the batch is one piece.
        return batch, np.full(batch.num_rows, first, dtype=np.int64), []


_RUNNERS: dict[str, type[StepRunner]] = {
    "map": _Map,
    "flat_map": _FlatMap,
    "filter": _Filter,
    "map_batches": _MapBatches,
    "columns": _Columns,
    "add_column": _AddColumn,
    "prepare": PrepareRunner,
}


def _ordinals(block: Block, rows: list[int], *, one_for_one: bool) -> Any:
    """Return the ordinals of some rows of a block; None where they are dense and no row between them is left out."""
    return None if one_for_one and block.ordinals is None else block.ordinal_array()[rows]


def _taken(block: Block, rows: list[int]) -> pa.RecordBatch:
    """Return some rows of a block, in ascending order; without a copy where they follow one another."""
    if not rows or rows[-1] - rows[0] + 1 == len(rows):
        return block.batch.slice(rows[0] if rows else 0, len(rows))
    return block.batch.take(array_of_numbers(np.array(rows, dtype=np.int64)))


def _joined(left: Any, right: Any, first: int, half: int, count: int) -> tuple[pa.RecordBatch, Any, list[RowFailure]]:
    batches = [part[0] for part in (left, right) if part[0].num_rows]
    parents = np.concatenate(
        [
            np.arange(first, first + half) if left[1] is None else left[1],
            np.arange(first + half, first + count) if right[1] is None else right[1],
        ]
    ).astype(np.int64)
    batch = left[0]
    if batches:
        batch = concatenated(batches)
    return batch, parents, [*left[2], *right[2]]


def _weight(rows: Rows, out: list[Mapping[str, Any]], parents: list[int]) -> float:
    """Return the bytes a row of the last results."""
    return float(rows.batch_of(out[-WEIGHED_ROWS:], parents[-WEIGHED_ROWS:]).nbytes) / WEIGHED_ROWS


def _not_a_row(step: Step, result: Any) -> Exception:
    if isinstance(result, RowError):
        return result
    wanted = "a dict" if step.kind == "map" else "dicts"
    if result is None:
        return TypeError(
            f"{step.kind} functions return {wanted}, and this one returned nothing; is its return missing?"
        )
    return TypeError(f"{step.kind} functions return {wanted}, not {type(result).__name__}")
