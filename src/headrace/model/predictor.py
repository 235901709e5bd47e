"""One loaded model at work: batches in, columns out, bad rows found by halving."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, ModelLoadError, RowError, RowTooLarge
from headrace.metrics.quantities import amount
from headrace.metrics.statistics import ModelStatistics
from headrace.model.answers import Answers, pair
from headrace.model.attempts import Attempts
from headrace.model.calls import resting
from headrace.model.device import allocated_bytes, told_device
from headrace.model.exhaustion import is_out_of_memory, release_memory
from headrace.model.found import Found
from headrace.model.handler import accepts_inference_args, knows_columns
from headrace.model.latency import Latencies
from headrace.model.loading import import_framework, without_gc
from headrace.model.preparing import model_inputs, ready_rows
from headrace.model.search import Search
from headrace.model.splitting import Splitting
from headrace.model.tally import Tally
from headrace.plan.retry import Retry
from headrace.records.failure import told
from headrace.records.first_rows import FirstRows
from headrace.records.plain import array_of_numbers, array_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.model.calls import Calls
    from headrace.model.found import Prediction
    from headrace.model.inputs import Inputs
    from headrace.plan.nodes import InferenceSpec
    from headrace.plan.steps import OnError

_log = logging.getLogger("headrace.model")


class Predictor:
    """Loads a handler's model once and runs it over record batches, from any number of threads.

    A batch that fails (at all attempts that `spec.retry` gives it), or is answered the wrong number of times, is halved
    until the rows to blame stand alone; no part that was answered is run again. `on_error` says what becomes of them:
    "fail" raises at the first one, "dead_letter" takes them out, "null" lets them go on with nulls.

    >>> from headrace.model.handler import ModelHandler
    >>> from headrace.plan.nodes import InferenceSpec
    >>> class Upper(ModelHandler):
    ...     def load_model(self): return str.upper
    ...     def run_inference(self, batch, model): return [model(r["text"]) for r in batch]
    >>> predictor = Predictor(InferenceSpec(handler=Upper()), "run_inference_1", "dead_letter")
    >>> prediction = predictor.predict(pa.record_batch({"text": ["a", None]}))
    >>> prediction.columns["prediction"].to_pylist(), prediction.kept.tolist()
    (['A'], [True, False])
    """

    def __init__(
        self,
        spec: InferenceSpec,
        stage: str,
        on_error: OnError = "fail",
        *,
        first_rows: FirstRows | None = None,
        calls: Calls | None = None,
        pause: Callable[[float], None] = time.sleep,
        sent_at_once: bool = False,
    ) -> None:
        """`pause` waits so many seconds between attempts, and raises where the run is being stopped.

        Predictions that are `sent_at_once`, before the next is asked for, may share memory with the handler.
        """
        self._spec, self._stage, self._on_error, self._noted = spec, stage, on_error, calls
        self._may_share = sent_at_once and spec.retry is None
        self._sharing = False
        self._attempts = Attempts(spec.retry or Retry(1), pause=resting(calls, pause))
        self._handler_name = type(spec.handler).__name__
        self._run = _caller(spec)
        self._inputs: Inputs = None
        self._model: Any = None
        self._loading = threading.Lock()
        self._loaded = False
        self._counting = threading.Lock()
        self._loads = self._calls = self._batches = self._rows = 0
        self._out_of_memory = 0
        self._tally = Tally(stage, on_error, first_rows or FirstRows())
        self._load_secs, self._device = 0.0, ""
        self._sizes: Counter[int] = Counter()
        self._latencies = Latencies()
        self._splitting = Splitting()
        self._answer_shapes: dict[str | None, tuple[int, ...]] = {}
        """Of one row, in the last batch of several: what a model squeezes for a batch of one is known by it."""

    def open(self) -> None:
        """Load the model if it is not loaded yet; `predict` does so by itself, this is for doing it early.

        Raises:
            ModelLoadError: loading failed; names the handler, its files and the cause.
        """
        with self._loading:
            if self._loaded:
                return
            began = time.perf_counter()
            handler = self._spec.handler
            try:
                import_framework(handler)
                with without_gc():
                    self._model = handler.load_model()
                inputs = handler.default_inputs() if self._spec.inputs is None else self._spec.inputs
                self._inputs = inputs if inputs is None or isinstance(inputs, (str, Mapping)) else tuple(inputs)
                several = self._inputs is not None and not isinstance(self._inputs, str)
                if several and not self._spec.prepared and knows_columns(handler, "check_model"):
                    handler.check_model(self._model, list(self._inputs or ()))
            except (HeadraceError, MemoryError):
                raise
            except Exception as error:
                raise ModelLoadError(
                    _load_failure(error, self._stage, self._handler_name, handler.model_files())
                ) from error
            self._device = told_device(self._model)
            self._load_secs += time.perf_counter() - began
            self._loads += 1
            self._loaded = True

    def close(self) -> None:
        """Unload the model; safe to call twice, and without `open`."""
        with self._loading:
            if not self._loaded:
                return
            model, self._model, self._loaded = self._model, None, False
        try:
            self._spec.handler.unload(model)
        except Exception:
            # Every answer has been handed over by now; a model that leaves badly must not undo them.
            _log.warning("stage %r: %s.unload failed", self._stage, self._handler_name, exc_info=True)

    def predict(self, batch: pa.RecordBatch) -> Prediction:
        """Answer a batch of at least one row.

        Raises:
            StageError: a row failed under on_error="fail"; `row` is its number in the batch, the cause is chained.
            TooManyFailuresError: 100 rows have failed and none has ever succeeded.
            ModelLoadError: the model was not loaded yet, and cannot be.
        """
        if not self._loaded:
            self.open()
        rows = batch.num_rows
        with self._counting:
            self._batches += 1
            self._rows += rows
            self._sizes[1 << (rows.bit_length() - 1)] += 1
            at_once = self._splitting.rows_at_once(rows)
        found = self._found(batch, at_once)
        with self._counting:
            self._splitting.observe(rows, failed=found.refused)
        return found.prediction(self._output_names, rows, self.model_id, nulls=self._on_error == "null")

    def warm_up(self, batch: pa.RecordBatch) -> Prediction:
        """Ask the model once about rows that another one has answered: a trial, which counts nowhere.

        Raises:
            Exception: what the model raised, or, where every answer is an error, the first of them.
        """
        rows = batch.num_rows
        if self._noted is not None:
            self._noted.begin(0, 0, 0, rows)
        try:
            answers = self._paired(model_inputs(batch, self._spec, self._inputs, step=self._stage), rows)
        finally:
            if self._noted is not None:
                self._noted.end()
        if len(answers.failures) == rows:
            raise next(iter(answers.failures.values()))
        found = Found()
        found.answered(0, rows, answers)
        if rows > 1:
            self._answer_shapes = answers.shapes
        return found.prediction(self._output_names, rows, self.model_id, nulls=False)

    @property
    def model_id(self) -> str:
        """What the `model_id` column says for rows whose handler said nothing else."""
        return self._spec.model_id or self._spec.handler.model_id

    def model_id_column(self, prediction: Prediction) -> pa.DictionaryArray:
        """Make the `model_id` column of a prediction's kept rows, each distinct id stored once."""
        if prediction.model_ids is not None:
            return pa.array(prediction.model_ids, type=pa.string()).dictionary_encode()
        indices = array_of_numbers(np.zeros(prediction.rows, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(indices, array_of_text([self.model_id]))

    @property
    def failed(self) -> int:
        """Rows that failed so far."""
        return self._tally.failed

    @property
    def succeeded(self) -> int:
        """Rows that were answered so far."""
        return self._tally.succeeded

    def statistics(self) -> ModelStatistics:
        """Return what the model did so far; `target_batch_rows` is the batcher's to say."""
        with self._counting:
            return ModelStatistics(
                handler=self._handler_name,
                load_secs=self._load_secs,
                loads=self._loads,
                calls=self._calls,
                retried=self._attempts.repeated,
                out_of_memory=self._out_of_memory,
                batches=self._batches,
                rows=self._rows,
                batch_rows_histogram=dict(sorted(self._sizes.items())),
                latency_p50_secs=self._latencies.quantile(0.5),
                latency_p99_secs=self._latencies.quantile(0.99),
                placed_on=self._device,
                device_bytes=allocated_bytes(),
            )

    @property
    def _output_names(self) -> tuple[str, ...]:
        output = self._spec.output
        return (output,) if isinstance(output, str) else tuple(output.values())

    def _found(self, batch: pa.RecordBatch, at_once: int) -> Found:
        """Search through the batch; once more where what was taken by then turns out not to be trusted."""
        search = Search(partial(self._ask, batch), self._attempts, self._tally)
        trusting = self._tally.distrust is None
        while True:
            for first in range(0, batch.num_rows, at_once):
                search.span(first, min(at_once, batch.num_rows - first))
            if not (trusting and self._tally.distrust is not None and search.found.answered_alone):
                return search.found
            search.start_anew()
            trusting = False

    def _ask(self, batch: pa.RecordBatch, first: int, count: int, *, again: bool) -> Answers:
        """Make the call for some rows, noted for whoever watches, and `again` where it fails and that is wanted."""
        rows = batch.slice(first, count)
        self._sharing = self._may_share and count == batch.num_rows  # of several calls, each would spoil the one before
        if self._noted is not None:
            self._noted.begin(0, first, 0, count)
        try:
            return self._attempts.call(lambda: self._answered(rows)) if again else self._call(rows)
        finally:
            if self._noted is not None:
                self._noted.end()

    def _answered(self, rows: pa.RecordBatch) -> Answers:
        """Make a call; an error in the place of a single row's answer counts as raised, where that is worth it."""
        answers = self._call(rows)
        if rows.num_rows == 1 and answers.failures and self._attempts.worthwhile(answers.failures[0]):
            raise answers.failures[0]
        return answers

    def _call(self, batch: pa.RecordBatch) -> Answers:
        """Make a call; raise RowTooLarge where memory does not suffice, once what is held for later use is freed."""
        for attempt in (1, 2):
            try:
                return self._ready(batch)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                cause = told(error)
            # Out here the error is gone, and with it the frames that hold what the call had allocated.
            release_memory()
            with self._counting:
                self._out_of_memory += 1
            if batch.num_rows > 1 or attempt == 2:
                break
        what = "a row, alone in its batch, of" if batch.num_rows == 1 else f"{batch.num_rows:,} rows of"
        raise RowTooLarge(f"memory does not suffice for {what} {amount(batch.nbytes)} ({cause})")

    def _ready(self, batch: pa.RecordBatch) -> Answers:
        """Make a call for those rows that could be prepared; the others have failed before it."""
        ready = ready_rows(batch, self._spec)
        if ready is None:
            return self._timed(batch)
        answers = self._timed(batch.take(array_of_numbers(ready))) if len(ready) else Answers.none(self._output_names)
        return answers.spread(ready, batch.num_rows, RowError("its inputs could not be prepared"))

    def _timed(self, batch: pa.RecordBatch) -> Answers:
        inputs = model_inputs(batch, self._spec, self._inputs, step=self._stage)
        began = time.perf_counter()
        try:
            answers = self._paired(inputs, batch.num_rows)
        finally:
            seconds = time.perf_counter() - began
            with self._counting:
                self._calls += 1
                self._latencies.add(seconds)
        with self._counting:
            self._splitting.answered(batch.num_rows, seconds)
        if batch.num_rows > 1:
            self._answer_shapes = answers.shapes
        return answers

    def _paired(self, inputs: Any, rows: int) -> Answers:
        """Run the model, and check that there is an answer for each row."""
        return pair(
            self._run(inputs, self._model),
            rows,
            handler_name=self._handler_name,
            output=self._spec.output,
            known_shapes=self._answer_shapes,
            shared=self._sharing,
        )


def _caller(spec: InferenceSpec) -> Callable[[Any, Any], Any]:
    """Return `run_inference` as a function of batch and model, whatever way it takes `inference_args`, if any."""
    run = spec.handler.run_inference
    if not accepts_inference_args(spec.handler):
        return run
    args = dict(spec.inference_args) or None
    parameters = inspect.signature(run).parameters
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return lambda batch, model: run(batch, model, args)
    return lambda batch, model: run(batch, model, inference_args=args)


def _load_failure(error: Exception, stage: str, handler_name: str, files: Sequence[str]) -> str:
    where = f" from {', '.join(files)}" if files else ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        advice = f"install the package that provides {error.name!r}"
    elif isinstance(error, FileNotFoundError):
        advice = "check the path"
    else:
        advice = "check that the model fits the handler and its arguments"
    return f"stage {stage!r}: {handler_name} cannot load its model{where}: {told(error)}; {advice}"
