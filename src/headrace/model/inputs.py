"""From a record batch to what a handler sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import UnknownColumnError
from headrace.plan.schemas import input_columns
from headrace.records.columns import from_column, to_column, to_numpy, to_rows
from headrace.records.private import public
from headrace.records.tensors import ObjectType
from headrace.records.types import is_number, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Inputs: TypeAlias = str | tuple[str, ...] | Mapping[str, Any] | None
"""None: rows. A name: that column. Several names: a matrix. A mapping of names to either: named arrays."""


def make_inputs(
    batch: pa.RecordBatch, inputs: Inputs, *, input_format: str = "auto", step: str = "run_inference"
) -> Any:
    """Return the batch as a handler wants to see it.

    | `inputs`  | "auto"                             | "pandas"                     | "pyarrow"           |
    | --------- | ---------------------------------- | ---------------------------- | ------------------- |
    | None      | list of dicts                      | DataFrame of all columns     | RecordBatch         |
    | "a"       | array of the column, (n,) or (n,…) | Series                       | Array               |
    | ("a",)    | matrix (n, 1)                      | DataFrame                    | RecordBatch         |
    | {"x": …}  | dict of such arrays                | dict of Series or DataFrames | RecordBatch or dict |

    >>> make_inputs(pa.record_batch({"age": [31, None], "spend": [2.5, 4.0]}), ("age", "spend"))
    array([[31. ,  2.5],
           [ nan,  4. ]])

    Raises:
        UnknownColumnError: an input column is not there; `step` is named in the message.
    """
    if isinstance(inputs, Mapping):
        if input_format == "pyarrow" and all(isinstance(source, str) for source in inputs.values()):
            return select(batch, tuple(inputs.values()), step=step).rename_columns(list(inputs))
        return {
            name: make_inputs(
                batch, source if isinstance(source, str) else tuple(source), input_format=input_format, step=step
            )
            for name, source in inputs.items()
        }
    if input_format == "pandas":
        return _pandas(batch, inputs, step)
    if isinstance(inputs, str):
        column = select(batch, (inputs,), step=step).column(0)
        return column if input_format == "pyarrow" else column_array(column)
    chosen = public(batch) if inputs is None else select(batch, inputs, step=step)
    if input_format == "pyarrow":
        return chosen
    return to_rows(chosen) if inputs is None else matrix(chosen.columns)


def columns_of(inputs: Inputs) -> tuple[str, ...] | None:
    """Return the columns that `inputs` reads, each once; None means all of them.

    >>> columns_of({"ids": "tokens", "rest": ("age", "tokens")})
    ('tokens', 'age')
    """
    return None if inputs is None else tuple(dict.fromkeys(input_columns(inputs)))


def select(batch: pa.RecordBatch, names: Sequence[str], *, step: str) -> pa.RecordBatch:
    """Return the named columns in that order.

    Raises:
        UnknownColumnError: one of them is not there.
    """
    present = batch.schema.names
    for name in names:
        if name not in present:
            raise UnknownColumnError(name, public(batch).schema.names, step=step)
    return pa.RecordBatch.from_arrays([batch.column(present.index(name)) for name in names], names=list(names))


def column_array(column: pa.Array) -> NDArray[Any]:
    """Return a column as an array: numbers in their dtype (nulls as NaN), text and the rest as objects.

    >>> column_array(pa.array(["a", None]))
    array(['a', None], dtype=object)
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return to_numpy(_typed(column))


def is_numeric(type_: pa.DataType) -> bool:
    """Say whether a column can stand in a matrix of numbers: integers, floats, booleans, or nothing but nulls."""
    return is_number(type_) or bool(pa.types.is_boolean(type_) or pa.types.is_null(type_))


def _typed(column: pa.Array) -> pa.Array:
    """Return numbers, or arrays of them, as such, though other rows of the column are of another kind.

    So a row that does not fit is to blame alone, once the batch is halved often enough.
    """
    if not isinstance(column.type, ObjectType):
        return column
    values = from_column(column)
    return to_column(values) if all(value is None or _is_numbers(value) for value in values) else column


def _is_numbers(value: Any) -> bool:
    if not isinstance(value, (list, np.ndarray)):
        return isinstance(value, (int, float, np.number, np.bool_))
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # lists of different lengths
        return False


def matrix(columns: Sequence[pa.Array]) -> NDArray[Any]:
    """Put columns side by side: (n, k) of their common number type, of objects if any is not a number.

    Integers and booleans with nulls become floats with NaN.

    >>> matrix([pa.array([1, 2]), pa.array([True, False])])
    array([[1, 1],
           [2, 0]])
    """
    columns = [_typed(column) for column in columns]
    if all(is_numeric(column.type) for column in columns):
        arrays = [_numbers(column) for column in columns]
        dtype = np.result_type(*arrays)
    else:
        arrays = [column_array(column) for column in columns]
        dtype = np.dtype(object)
    result = np.empty((len(columns[0]), len(columns)), dtype=dtype)
    for i, array in enumerate(arrays):
        result[:, i] = array if array.ndim == 1 else list(array)
    return result


def _numbers(column: pa.Array) -> NDArray[Any]:
    if pa.types.is_null(column.type) or (pa.types.is_boolean(column.type) and column.null_count):
        column = column.cast(pa.float64())
    return to_numpy(column)


def _pandas(batch: pa.RecordBatch, inputs: str | tuple[str, ...] | None, step: str) -> Any:
    if inputs is None:
        return public(batch).to_pandas()
    frame = select(batch, (inputs,) if isinstance(inputs, str) else inputs, step=step).to_pandas()
    return frame[inputs] if isinstance(inputs, str) else frame
