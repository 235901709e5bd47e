"""How much rows weigh: by a column, or as their handler says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError, StageError, UnknownColumnError
from headrace.model.handler import ModelHandler
from headrace.model.preparing import model_inputs, ready_rows
from headrace.records.plain import array_of_numbers
from headrace.records.tensors import TensorType
from headrace.records.types import is_bytes, is_list, is_number, is_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.plan.nodes import InferenceSpec


class Scales:
    """Weighs the rows of a model stage.

    >>> from headrace.plan.nodes import BatchLimits, InferenceSpec
    >>> class Upper(ModelHandler):
    ...     def load_model(self): return str.upper
    ...     def run_inference(self, batch, model): return [model(text) for text in batch]
    ...     def weigh(self, batch): return [len(text) for text in batch]
    >>> scales = Scales(InferenceSpec(handler=Upper(), inputs="text"), "run_inference_1")
    >>> scales.padded, scales.weights(pa.record_batch({"text": ["abc", "d"]}))
    (True, array([3., 1.]))
    """

    def __init__(self, spec: InferenceSpec, stage: str) -> None:
        self._spec, self._stage = spec, stage
        self._column = spec.limits.weight_column
        self.by_handler = self._column is None and weighs(spec.handler)
        self.padded = spec.handler.padded if self.by_handler else spec.limits.padded

    def weights(self, batch: pa.RecordBatch) -> NDArray[np.float64] | None:
        """Return the weight of each row, at least 0; None where all weigh alike.

        Raises:
            StageError: the column cannot be weighed, or the handler does not give one number a row.
            UnknownColumnError: the column is not there.
        """
        if self._column is not None:
            if self._column not in batch.schema.names:
                raise UnknownColumnError(self._column, batch.schema.names, step=self._stage)
            try:
                return weights_of(batch.column(self._column))
            except TypeError as error:
                raise StageError(f"step {self._stage!r} weighs rows by {self._column!r}, which {error}") from None
        return self._by_handler(batch) if self.by_handler else None

    def _by_handler(self, batch: pa.RecordBatch) -> NDArray[np.float64]:
        ready = ready_rows(batch, self._spec)
        if ready is None:
            return self._asked(batch)
        weights = np.zeros(batch.num_rows)
        if len(ready):
            weights[ready] = self._asked(batch.take(array_of_numbers(ready)))
        return weights

    def _asked(self, batch: pa.RecordBatch) -> NDArray[np.float64]:
        handler, inputs = self._spec.handler, self._spec.inputs
        if inputs is None and (default := handler.default_inputs()) is not None:
            inputs = default if isinstance(default, str) else tuple(default)
        try:
            given = model_inputs(batch, self._spec, inputs, step=self._stage)
            return self._checked(handler.weigh(given), batch.num_rows)
        except StageError:
            raise
        except Exception:
            # The model will meet the rows to blame, and fail them; as long as that they are like nothing.
            if batch.num_rows == 1:
                return np.zeros(1)
            half = batch.num_rows // 2
            return np.concatenate([self._asked(batch.slice(0, half)), self._asked(batch.slice(half))])

    def _checked(self, given: Any, rows: int) -> NDArray[np.float64]:
        weights = np.asarray(given, dtype=np.float64)
        if weights.shape != (rows,):
            raise StageError(
                f"step {self._stage!r}: {type(self._spec.handler).__name__}.weigh returned an array of shape"
                f" {weights.shape} for {rows} rows; it has to return one number for each row"
            )
        return _sound(weights)


def weighs(handler: ModelHandler[Any]) -> bool:
    """Say whether a handler says how much its rows weigh."""
    return isinstance(handler, ModelHandler) and handler.weighs


def weights_of(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers as they are, and the lengths of text (characters), bytes, lists and tensors (elements); null is 0.

    >>> weights_of(pa.array(["four", None, "é"])), weights_of(pa.array([[1, 2], []]))
    (array([4., 0., 1.]), array([2., 0.]))

    Raises:
        TypeError: the column holds something else.
    """
    import pyarrow.compute as pc  # takes as long as the rest of Headrace to import, and is seldom needed

    if isinstance(column.type, TensorType):
        column = column.storage.field("data")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_text(kind):
        column = pc.utf8_length(column)
    elif is_bytes(kind):
        column = pc.binary_length(column)
    elif is_list(kind):
        column = pc.list_value_length(column)
    elif not (is_number(kind) or pa.types.is_null(kind)):
        raise TypeError(f"holds {kind}; it has to hold numbers, text, bytes or lists")
    return _sound(column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False))


def _sound(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(weights), np.maximum(weights, 0.0), 0.0)


def check_scales(spec: InferenceSpec, stage: str) -> None:
    """Raise PlanError where batches are bounded by weight and nothing says what rows weigh."""
    limits = spec.limits
    if limits.max_batch_weight is not None and limits.weight_column is None and not weighs(spec.handler):
        raise PlanError(
            f"stage {stage!r}: max_batch_weight needs to know what rows weigh; pass length_fn= or weight_fn=, a column"
            f" or a function, or give {type(spec.handler).__name__} a method weigh()"
        )
