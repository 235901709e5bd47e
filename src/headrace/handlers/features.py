"""The features of models on tables: columns by name in the model's own order, and as matrices of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError, suggestion
from headrace.model.inputs import column_array, is_numeric, select
from headrace.records.columns import from_column
from headrace.records.tensors import ObjectType
from headrace.records.types import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def check_names(names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise if a model that knows its features by name is not given one of them.

    >>> check_names(["age", "spend"], ["id", "agee", "spend"])
    Traceback (most recent call last):
    headrace.errors.PlanError: the model was fitted on columns age, spend; age is not among those given (id, agee,
    spend); did you mean 'agee'? Columns of other names go in as inputs={'age': 'your column', …}

    Raises:
        PlanError: names all that are missing, and the nearest name to the first of them.
    """
    missing = [name for name in names if name not in columns]
    if missing:
        near = suggestion(missing[0], [column for column in columns if column not in names])
        raise PlanError(
            f"the model was fitted on columns {', '.join(names)}; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not among those given ({', '.join(columns)})"
            f"{f';{near}' if near else '.'} Columns of other names go in as inputs={{{missing[0]!r}: 'your column', …}}"
        )


def check_count(count: int, columns: Sequence[str]) -> None:
    """Raise if a model that knows only how many features it has is given more or fewer columns.

    Raises:
        PlanError: says both numbers.
    """
    if len(columns) != count:
        given = f"{len(columns)} columns" if len(columns) != 1 else "1 column"
        raise PlanError(
            f"the model takes {count} features and was given {given} ({', '.join(columns)}); name those to take with "
            "inputs="
        )


def in_order(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the columns that a model was fitted on, in its own order.

    Raises:
        PlanError: one of them is not there.
    """
    check_names(names, batch.schema.names)
    return select(batch, names, step="run_inference")


def number_matrix(
    columns: pa.RecordBatch, dtype: type[np.float32] | type[np.float64], *, order: Literal["C", "F"] = "C"
) -> NDArray[Any]:
    """Put columns side by side as floats, nulls as NaN.

    >>> number_matrix(pa.record_batch({"age": [31, None], "new": [True, False]}), np.float32)
    array([[31.,  1.],
           [nan,  0.]], dtype=float32)

    Raises:
        ValueError: a column holds something else than numbers; the rows to blame are found by halving the batch.
    """
    result = np.empty((columns.num_rows, columns.num_columns), dtype=dtype, order=order)
    for i, (name, column) in enumerate(zip(columns.schema.names, columns.columns, strict=True)):
        result[:, i] = numbers(column, name)
    return result


def numbers(column: pa.Array, name: str) -> NDArray[Any]:
    """Return a column of numbers or booleans as an array, nulls as NaN.

    Raises:
        ValueError: it holds something else.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    type_ = column.type
    if isinstance(type_, ObjectType):
        return _of_objects(from_column(column), name)
    if pa.types.is_null(type_) or pa.types.is_decimal(type_) or (pa.types.is_boolean(type_) and column.null_count):
        column = column.cast(pa.float64())
    elif not is_numeric(type_):
        raise ValueError(f"feature {name!r} takes numbers and was given {described(type_)}")
    return column_array(column)


def vectors(column: pa.Array, count: int) -> NDArray[Any]:
    """Return a single column as a matrix: of its vectors, or of one number a row.

    Raises:
        PlanError: there is one number a row, and the model takes more.
        ValueError: the vectors are not all of `count` numbers.
    """
    if count != 1 and is_numeric(column.type) and not pa.types.is_null(column.type):
        raise PlanError(
            f"the model takes {count} features and was given one column of numbers; name all that it takes with inputs="
        )
    values = column_array(column)
    matrix = values.reshape(-1, 1) if values.ndim == 1 and values.dtype.kind in "biuf" else values
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf" or matrix.shape[1] != count:
        given = f"vectors of {matrix.shape[1]}" if matrix.ndim == 2 else f"{described(column.type)} of various lengths"
        raise ValueError(f"the model takes {count} features a row and was given {given}; name its columns with inputs=")
    return matrix


def described(type_: pa.DataType) -> str:
    """Name a type as users do.

    >>> described(pa.string()), described(pa.int64())
    ('text', 'int64')
    """
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return "text" if is_text(type_) else str(type_)


def _of_objects(values: list[Any], name: str) -> NDArray[Any]:
    """Numbers that stand among other things in a column."""
    for value in values:
        if value is not None and not isinstance(value, (int, float, np.number, np.bool_)):
            raise ValueError(f"feature {name!r} takes numbers and was given {value!r:.80}")
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
