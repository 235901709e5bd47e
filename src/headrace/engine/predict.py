"""The task of a model stage: one batch of rows through the predictor, answers beside the rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.engine.steps import with_column
from headrace.engine.task import StepCounts
from headrace.errors import StageError
from headrace.model.predictor import Predictor
from headrace.records.block import Block, Unit
from headrace.records.columns import to_rows
from headrace.records.failure import RowFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.metrics.statistics import ModelStatistics
    from headrace.model.predictor import Prediction
    from headrace.plan.nodes import InferenceSpec
    from headrace.plan.steps import OnError


class PredictTask:
    """Answers batches with one loaded model; shared by the threads of a stage, or alone in a worker process.

    The blocks it gets are batches: row i has ordinal i, so that failures come back with the row's place in the batch.
    Under on_error="fail" the first bad row comes back as a failure too, and the stage, which knows the file, raises.
    """

    def __init__(self, spec: InferenceSpec, stage: str, on_error: OnError) -> None:
        self._spec, self._stage, self._on_error = spec, stage, on_error
        self._predictor: Predictor | None = None
        self._counts = StepCounts()

    def open(self) -> None:
        """Load the model."""
        self._predictor = Predictor(self._spec, self._stage, self._on_error)
        self._predictor.open()

    def process(self, block: Block) -> Iterator[Block]:
        """Answer one batch."""
        assert self._predictor is not None
        started = time.perf_counter()
        try:
            prediction = self._predictor.predict(block.batch)
        except StageError as error:
            row = getattr(error, "row", None)
            if row is None:
                raise
            failure = self._failure(error.__cause__ or error, block, row)
            yield block.derive(block.batch.slice(0, 0), np.array([], dtype=np.int64), [failure])
            return
        yield self._answered(block, self._predictor, prediction)
        self._counts.seconds += time.perf_counter() - started

    def counts(self) -> Mapping[str, StepCounts]:
        """The stage counts rows itself, since it sees them leave; only the time is counted here."""
        return {self._stage: self._counts}

    def close(self) -> None:
        """Unload the model."""
        if self._predictor is not None:
            self._predictor.close()

    def model_statistics(self) -> ModelStatistics | None:
        """Return the predictor's numbers once the model is loaded."""
        return self._predictor.statistics() if self._predictor is not None else None

    def _answered(self, block: Block, predictor: Predictor, prediction: Prediction) -> Block:
        batch, parents = block.batch, None
        failures = [self._failure(error, block, row) for row, error in sorted(prediction.errors.items())]
        if prediction.kept is not None:
            parents = np.flatnonzero(prediction.kept)
            batch = batch.take(pa.array(parents))
        for name, column in prediction.columns.items():
            batch = with_column(batch, name, column)
        if self._spec.model_id_column is not None:
            batch = with_column(batch, self._spec.model_id_column, predictor.model_id_column(prediction))
        return block.derive(batch, parents, failures, errors=prediction.with_error)

    def _failure(self, error: BaseException, block: Block, row: int) -> RowFailure:
        return RowFailure.of(
            error,
            stage=self._stage,
            ordinal=row,
            row=to_rows(block.batch.slice(row, 1))[0],
            model_id=self._spec.handler.model_id,
        )


def batch_block(batch: pa.RecordBatch) -> Block:
    """Wrap a batch of rows from any blocks as the block that a `PredictTask` takes."""
    return Block(batch=batch, unit=Unit(0), start=(0,), end=(batch.num_rows,))
