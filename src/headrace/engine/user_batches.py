"""Batches as users' functions see them, and back: rows as dicts, columns as arrays, data frames."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.records.columns import (
    empty_columns,
    floats_would_round,
    from_column,
    from_columns,
    from_rows,
    to_column,
    to_exact_numpy,
    to_rows,
)
from headrace.records.plain import array_of_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Rows:
    """A batch as dicts, remembering the values so that untouched columns are handed on as they are."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = batch.schema.names
        self._values = [from_column(column) for column in batch.columns]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows; each is a dict of its own, for the function to keep or change."""
        names = self._names
        if not names:
            yield from ({} for _ in range(self._batch.num_rows))
            return
        for row in zip(*self._values, strict=True):
            yield dict(zip(names, row, strict=True))

    def dict_of(self, row: int) -> dict[str, Any]:
        """Return one row, as it was given."""
        return {name: values[row] for name, values in zip(self._names, self._values, strict=True)}

    def batch_of(self, rows: Sequence[Mapping[str, Any]], parents: Sequence[int]) -> pa.RecordBatch:
        """Make a batch of result rows; a column whose values are the very objects given keeps its Arrow type."""
        if not rows:
            return empty_columns(0)
        names = dict.fromkeys(name for row in rows for name in row)
        if not names:
            return empty_columns(len(rows))
        columns = []
        for name in names:
            values = [row.get(name) for row in rows]
            columns.append(self._unchanged(name, values, parents) or self._changed(name, values))
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _changed(self, name: str, values: list[Any]) -> pa.Array:
        return to_column(values, like=self._batch.column(name).type if name in self._names else None)

    def _unchanged(self, name: str, values: list[Any], parents: Sequence[int]) -> pa.Array | None:
        if name not in self._names:
            return None
        index = self._names.index(name)
        before, first, rows = self._values[index], parents[0], len(parents)
        together = parents[-1] - first == rows - 1  # if not, the objects are others
        given = before[first : first + rows] if together else [before[i] for i in parents]
        if len(given) != len(values) or not all(map(operator.is_, values, given)):
            return None
        column = self._batch.column(index)
        if together:
            return column.slice(first, rows)  # no copy: rows may be large
        return column.take(array_of_numbers(np.array(parents, dtype=np.int64)))


def names_in(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return a row whose keys are names of columns, which is what they have to be.

    Raises:
        ValueError: they are not.
    """
    for key in row:
        if not isinstance(key, str):
            raise ValueError(f"the row has the key {key!r}; keys are names of columns, and these are text")
        try:
            key.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the row has the key {key!a}, in which a character is cut in half") from None
    return row


def to_user(batch: pa.RecordBatch, batch_format: str) -> Any:
    """Return a batch in the form that a `map_batches` function asked for."""
    if batch_format == "pyarrow":
        return batch
    if batch_format == "numpy":
        return {name: to_exact_numpy(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    if batch_format == "pandas":
        return to_pandas(batch)
    return to_rows(batch)


def to_pandas(rows: pa.RecordBatch | pa.Table) -> Any:
    """Return rows as a DataFrame; integers that floats would change, beside nulls, as objects."""
    return rows.to_pandas(integer_object_nulls=any(floats_would_round(column) for column in rows.columns))


def from_user(result: Any, *, like: pa.Schema | None = None) -> pa.RecordBatch:
    """Make a batch of what a `map_batches` function returned, in whatever form; it was given columns `like` these.

    >>> from_user({"x": [1, 2]}).to_pydict(), from_user([{"x": 1}]).to_pydict()
    ({'x': [1, 2]}, {'x': [1]})

    Raises:
        TypeError: it is none of the forms.
    """
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        return one_batch(result)
    if isinstance(result, dict):
        return from_columns(result, like=like)
    if isinstance(result, list):
        return from_rows(result, like=like)
    if type(result).__module__.partition(".")[0] == "pandas":
        return _from_pandas(result, like)
    raise TypeError(
        f"returned {type(result).__name__}; return a dict of columns, a list of dicts, a pyarrow batch or a pandas "
        "DataFrame"
    )


def _from_pandas(frame: Any, like: pa.Schema | None) -> pa.RecordBatch:
    from headrace.records.series import column_of_series

    names = [str(name) for name in frame.columns]
    types = [like.field(name).type if like is not None and name in like.names else None for name in names]
    columns = [column_of_series(frame.iloc[:, i], like=type_) for i, type_ in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names=names) if columns else empty_columns(len(frame))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one record batch, without copying where it is in one piece already."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else no_rows(table.schema)


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return the batch with a column added, or replaced in its place."""
    index = batch.schema.get_field_index(name)
    return batch.append_column(name, column) if index < 0 else batch.set_column(index, name, column)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
