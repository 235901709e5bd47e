"""The task of a model stage: one batch of rows through the predictor, answers beside the rows."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.engine.side_data import opened
from headrace.engine.task import StepCounts
from headrace.errors import StageError
from headrace.model.calls import TimedCalls
from headrace.model.exhaustion import is_out_of_memory
from headrace.model.inputs import columns_of
from headrace.model.predictor import Predictor
from headrace.records.block import Block, Unit
from headrace.records.columns import joined
from headrace.records.failure import RowFailure
from headrace.records.first_rows import HOPELESS_ROWS, FirstRows
from headrace.records.private import PREPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.metrics.statistics import ModelStatistics
    from headrace.model.calls import Calls
    from headrace.model.found import Prediction
    from headrace.plan.nodes import InferenceSpec
    from headrace.plan.steps import OnError


EXHAUSTED = b"headrace.exhausted"
"""Metadata of answers: sizes of calls for which memory did not suffice, for whoever makes the batches."""
WARM_UP = b"headrace.warm_up"
"""Metadata of a batch that is a trial of the model: it is asked once, and nothing of it counts."""


class PredictTask:
    """Answers batches with one loaded model; shared by the threads of a stage, or alone in a worker process.

    The blocks it gets are batches: row i has ordinal i. What comes back has the output columns alone, with the ordinals
    of the rows that go on, and failures by ordinal. Under on_error="fail" the first bad row comes back as a failure:
    the stage, which knows its file and its other columns, raises.
    """

    one_piece = True

    def __init__(
        self,
        spec: InferenceSpec,
        stage: str,
        on_error: OnError,
        *,
        hopeless_rows: float = HOPELESS_ROWS,
        pause: Callable[[float], None] = time.sleep,
        sent_at_once: bool = False,
    ) -> None:
        """`pause` waits so many seconds between attempts, and raises where the run is being stopped.

        Answers that are `sent_at_once` to another process may share memory with the handler until the next batch.
        """
        self._sent_at_once = sent_at_once
        self._spec, self._stage, self._on_error, self._pause = spec, stage, on_error, pause
        self._hopeless_rows = hopeless_rows
        self._predictor: Predictor | None = None
        self._calls: Calls | None = None
        self._counts = StepCounts()

    def attend(self, calls: Calls) -> None:
        """Have `calls` told of each call of the model, from `open()` on."""
        self._calls = calls

    def open(self) -> None:
        """Load the model."""
        if self._calls is None and self._spec.timeout_secs is not None:
            self._calls = TimedCalls({0: self._spec.timeout_secs})
        spec = self._spec
        if spec.side_inputs:
            spec = replace(spec, inference_args={**spec.inference_args, **opened(spec.side_inputs)})
        self._predictor = Predictor(
            spec,
            self._stage,
            self._on_error,
            first_rows=FirstRows(enough=self._hopeless_rows),
            calls=self._calls,
            pause=self._pause,
            sent_at_once=self._sent_at_once,
        )
        self._predictor.open()

    def process(self, block: Block) -> Iterator[Block]:
        """Answer one batch."""
        assert self._predictor is not None
        if WARM_UP in (block.batch.schema.metadata or {}):
            yield self._warmed_up(block, self._predictor)
            return
        started = time.perf_counter()
        try:
            prediction = self._predictor.predict(block.batch)
        except StageError as error:
            if error.row is None:
                raise
            failure = self._failure(error.__cause__ or error, error.row)
            yield block.derive(block.batch.slice(0, 0), np.array([], dtype=np.int64), [failure])
            return
        yield self._answered(block, self._predictor, prediction)
        self._counts.seconds += time.perf_counter() - started

    def overdue(self, now: float) -> tuple[str, float] | None:
        """Return the stage and the time that a call may take, where one takes too long in this process."""
        if not isinstance(self._calls, TimedCalls) or self._calls.overdue(now) is None:
            return None
        assert self._spec.timeout_secs is not None
        return self._stage, self._spec.timeout_secs

    def progress(self) -> object:
        """Return what is different when a call of the model has ended."""
        statistics = self.statistics()
        return None if statistics is None else statistics.calls

    def counts(self) -> Mapping[str, StepCounts]:
        """The stage counts rows itself, since it sees them leave; only the time is counted here."""
        return {self._stage: self._counts}

    def close(self) -> None:
        """Unload the model."""
        if self._predictor is not None:
            self._predictor.close()

    def statistics(self) -> ModelStatistics | None:
        """Return the predictor's numbers once the model is loaded."""
        return self._predictor.statistics() if self._predictor is not None else None

    def _warmed_up(self, block: Block, predictor: Predictor) -> Block:
        """Answer a trial; one that fails comes back as one failure."""
        try:
            return self._answered(block, predictor, predictor.warm_up(block.batch))
        except Exception as error:
            batch = block.batch.slice(0, 0)
            if is_out_of_memory(error):
                batch = batch.replace_schema_metadata({EXHAUSTED: json.dumps([block.num_rows])})
            return block.derive(batch, np.array([], dtype=np.int64), [self._failure(error, 0)])

    def _answered(self, block: Block, predictor: Predictor, prediction: Prediction) -> Block:
        columns = dict(prediction.columns)
        if self._spec.model_id_column is not None:
            columns[self._spec.model_id_column] = predictor.model_id_column(prediction)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if prediction.exhausted:
            batch = batch.replace_schema_metadata({EXHAUSTED: json.dumps(prediction.exhausted)})
        parents = None if prediction.kept is None else np.flatnonzero(prediction.kept)
        attempts = prediction.attempts
        failures = [self._failure(error, row, attempts.get(row, 1)) for row, error in sorted(prediction.errors.items())]
        return block.derive(batch, parents, failures, errors=prediction.with_error)

    def _failure(self, error: BaseException, row: int, attempt: int = 1) -> RowFailure:
        model_id = self._spec.model_id or self._spec.handler.model_id
        return RowFailure.of(error, stage=self._stage, ordinal=row, row=None, attempt=attempt, model_id=model_id)


def trial_of(rows: Block) -> Block:
    """Return a batch as one that a model is warmed up with."""
    return rows.with_batch(rows.batch.replace_schema_metadata({WARM_UP: b""}))


def exhausted_in(answered: Block) -> list[int]:
    """Return the sizes of calls for which memory did not suffice."""
    found: list[int] = json.loads((answered.batch.schema.metadata or {}).get(EXHAUSTED, b"[]"))
    return found


def batch_of(rows: Sequence[pa.RecordBatch], spec: InferenceSpec) -> Block:
    """Put rows of any blocks together as the batch that a `PredictTask` takes.

    Only the columns that the model reads are copied, where it is known which those are.
    """
    read = [model_columns(batch, spec) for batch in rows]
    alike = all(batch.schema.names == read[0].schema.names for batch in read)
    batch = joined(read if alike else rows)
    return Block(batch=batch, unit=Unit(0), start=(0,), end=(batch.num_rows,))


def model_columns(batch: pa.RecordBatch, spec: InferenceSpec) -> pa.RecordBatch:
    """Return the columns that the model reads, as far as that is known and they are there."""
    names = (PREPARED,) if spec.prepared else columns_of(spec.inputs)
    return batch.select(list(names)) if names is not None and set(names) <= set(batch.schema.names) else batch
