"""Preparing: what makes a handler's inputs ready on CPUs, in front of the model, and how they reach the model.

They travel as one column of structs (`PREPARED`), so that a row is prepared whole or, as null, not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import RowError, StageError
from headrace.model.inputs import Inputs, column_array, make_inputs
from headrace.model.loading import importing
from headrace.records.columns import to_column
from headrace.records.private import PREPARED, is_private

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.plan.nodes import InferenceSpec


class Preparing:
    """A handler's preparer in one replica: a copy of its own, which it may set up.

    One with an attribute `column` finds the name of its column there, for messages, where it is given a single one.

    >>> lengths = Preparing(lambda texts: {"length": [len(text) for text in texts]}, "text", "auto")
    >>> column, failures = lengths(pa.record_batch({"text": ["a", "bcd"]}), step="embed/prepare")
    >>> column.to_pylist()
    [{'length': 1}, {'length': 3}]
    """

    def __init__(self, preparer: Any, inputs: Inputs, input_format: str, **_for_the_step: Any) -> None:
        self._preparer, self._inputs, self._input_format = copy.copy(preparer), inputs, input_format
        if isinstance(inputs, str) and not is_private(inputs) and hasattr(preparer, "column"):
            self._preparer.column = inputs

    def setup(self) -> None:
        """Set the preparer up, where it has a `setup()`."""
        with importing():  # a tokenizer's framework is the model's, which another thread may be importing
            getattr(self._preparer, "setup", _nothing)()

    def close(self) -> None:
        """Close the preparer, where it has a `close()`."""
        getattr(self._preparer, "close", _nothing)()

    def __call__(self, batch: pa.RecordBatch, *, step: str) -> tuple[pa.StructArray, dict[int, Exception]]:
        """Return the inputs of a batch as a column, and what stood in the place of rows that failed.

        Raises:
            UnknownColumnError: a column is not there.
            StageError: the preparer does not return a mapping.
            RowError: it does not return one value a row.
        """
        given = make_inputs(batch, self._inputs, input_format=self._input_format, step=step)
        made = self._preparer(given)
        if not isinstance(made, Mapping) or not made:
            what = "an empty mapping" if isinstance(made, Mapping) else type(made).__name__
            raise StageError(
                f"step {step!r}: the preparer {type(self._preparer).__name__} returned {what}; it has to return a"
                " mapping from names of inputs to one value a row"
            )
        failures: dict[int, Exception] = {}
        columns = [_column(name, values, batch.num_rows, failures) for name, values in made.items()]
        mask = np.isin(np.arange(batch.num_rows), list(failures)) if failures else None
        names = [str(name) for name in made]
        return pa.StructArray.from_arrays(columns, names, mask=None if mask is None else pa.array(mask)), failures


def model_inputs(batch: pa.RecordBatch, spec: InferenceSpec, inputs: Inputs, *, step: str) -> Any:
    """Return a batch as the handler's `run_inference` and `weigh` see it: prepared, or as `inputs` says.

    Raises:
        UnknownColumnError: an input column is not there.
    """
    if not spec.prepared:
        return make_inputs(batch, inputs, input_format=spec.handler.input_format, step=step)
    column = batch.column(PREPARED)
    return {field.name: column_array(column.field(i)) for i, field in enumerate(column.type)}


def ready_rows(batch: pa.RecordBatch, spec: InferenceSpec) -> NDArray[np.int64] | None:
    """Return the rows that could be prepared; None: all."""
    if not spec.prepared or not batch.column(PREPARED).null_count:
        return None
    return np.flatnonzero(batch.column(PREPARED).is_valid().to_numpy(zero_copy_only=False))


def _column(name: str, values: Any, rows: int, failures: dict[int, Exception]) -> pa.Array:
    """Make a column of one input's values; note the errors among them."""
    if not hasattr(values, "__len__") or len(values) != rows:
        what = f"{len(values)} values" if hasattr(values, "__len__") else type(values).__name__
        raise RowError(f"the preparer returned {what} of {name!r} for {rows} rows; it has to return one a row")
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return to_column(values)
    if hasattr(values, "__array__"):
        array = np.array(values)  # a copy: Arrow would share the memory, and a preparer may use it again
        if array.dtype != object:
            return to_column(array)
    found: list[Any] = list(values)
    for row, value in enumerate(found):
        if isinstance(value, Exception):
            failures.setdefault(row, value)
            found[row] = None
    return to_column(found)


def _nothing() -> None:
    pass
