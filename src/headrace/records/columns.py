"""Python values to Arrow columns and back: what row functions and handlers see and answer."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.records.plain import array_of_numbers, numbers_of
from headrace.records.tensors import (
    ObjectType,
    TensorType,
    objects_of,
    stacked_tensor_array,
    tensors_of,
)
from headrace.records.types import TypeQuarrelError, cast, concatenated, types_within, unify_types
from headrace.records.values import column_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def to_column(values: Any, *, like: pa.DataType | None = None) -> pa.Array:
    """Make a column of a sequence of Python values, a numpy array (first dimension: rows) or an Arrow array.

    Numbers, text, bytes, dates, lists and dicts become Arrow's own types; arrays of one dimension become lists, of
    more dimensions tensors; anything else is carried pickled inside the run. Integers beside floats become floats where
    these hold them exactly. `like` is the type of the column that the values come from: lists of pairs are maps where
    that has maps, which Python shows so.

    >>> to_column([1, None, 2.5]).type, to_column(np.zeros((2, 3))).type
    (DataType(double), ListType(list<item: double>))
    """
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        return values
    if like is not None and any(map(pa.types.is_map, types_within(like))):
        with suppress(ValueError, TypeError, OverflowError):
            return pa.array(list(values), type=like)
    if isinstance(values, np.ndarray):
        return _from_numpy(values)
    return column_of(list(values))


def from_column(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects; tensors come as numpy arrays, far times as numpy's.

    >>> from_column(pa.array([1, None]))
    [1, None]
    """
    if isinstance(column.type, TensorType):
        return tensors_of(column)
    if isinstance(column.type, ObjectType):
        return objects_of(column)
    if isinstance(column.type, pa.FixedShapeTensorType):
        there = column.is_valid().to_pylist()
        return [row if valid else None for row, valid in zip(column.to_numpy_ndarray(), there, strict=True)]
    if has_extension(column.type):
        return _from_nested(column)
    try:
        result: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # times that Python's own cannot tell
        return _beyond_python(column)
    return result


def has_extension(type_: pa.DataType) -> bool:
    """Say whether a column holds tensors or objects, at any depth."""
    if isinstance(type_, pa.BaseExtensionType):
        return True
    return any(has_extension(type_.field(i).type) for i in range(type_.num_fields))


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """Return a column as a numpy array whose first dimension is the rows.

    Numbers keep their dtype (nulls make floats with NaN), lists of equal length become a matrix, tensors of equal
    shape a stack; everything else becomes an array of objects.
    """
    if (plain := numbers_of(column)) is not None:
        return plain
    type_ = column.type
    if isinstance(type_, TensorType):
        rows = tensors_of(column)
        shapes = {None if r is None else r.shape for r in rows}
        return np.stack(rows) if len(shapes) == 1 and None not in shapes else _objects(rows)  # type: ignore[arg-type]
    if isinstance(type_, pa.FixedShapeTensorType) and not column.null_count:
        return np.asarray(column.to_numpy_ndarray())
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _matrix_of_lists(column)
    if pa.types.is_fixed_size_list(type_) and column.null_count == 0:
        return np.asarray(to_numpy(column.flatten()).reshape(len(column), type_.list_size))
    if pa.types.is_primitive(type_) and not pa.types.is_temporal(type_):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(type_) and not pa.types.is_time(type_):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return _objects(from_column(column))


def to_exact_numpy(column: pa.Array) -> NDArray[Any]:
    """Return a column as `to_numpy` does, but integers that floats would change, beside nulls, as objects."""
    return _objects(from_column(column)) if floats_would_round(column) else to_numpy(column)


def floats_would_round(column: pa.Array) -> bool:
    """Say whether a column has nulls beside integers so large that floats would change them (identifiers, say).

    >>> floats_would_round(pa.array([2**53 + 1, None])), floats_would_round(pa.array([2**53 + 1]))
    (True, False)
    """
    wide = pa.types.is_int64(column.type) or pa.types.is_uint64(column.type)
    if not wide or column.null_count in (0, len(column)):
        return False
    return bool(np.nanmax(np.abs(column.to_numpy(zero_copy_only=False))) >= 2.0**53)


def to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a batch as a list of dicts.

    >>> to_rows(pa.record_batch({"id": [1, 2]}))
    [{'id': 1}, {'id': 2}]
    """
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [from_column(c) for c in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def from_rows(rows: Sequence[Mapping[str, Any]], *, like: pa.Schema | None = None) -> pa.RecordBatch:
    """Make a batch of dicts; its columns are all keys met, in order of first appearance, null where a row lacks one.

    >>> from_rows([{"id": 1}, {"id": 2, "lang": "fi"}]).to_pydict()
    {'id': [1, 2], 'lang': [None, 'fi']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        return empty_columns(len(rows))
    return from_columns({name: [row.get(name) for row in rows] for name in names}, like=like)


def from_columns(columns: Mapping[str, Any], *, like: pa.Schema | None = None) -> pa.RecordBatch:
    """Make a batch of a dict of columns, as `map_batches` functions return it, given columns `like` these."""
    made = [to_column(values, like=_type_in(like, name)) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(made, names=list(columns))


def _type_in(schema: pa.Schema | None, name: str) -> pa.DataType | None:
    return schema.field(name).type if schema is not None and name in schema.names else None


def joined_column(columns: Sequence[pa.Array]) -> pa.Array:
    """Put the parts of a column together under their common type, as if they had been made at once.

    >>> joined_column([pa.array([1]), pa.array([None]), pa.array([0.5])]).to_pylist()
    [1.0, None, 0.5]
    """
    if len(columns) == 1:
        return columns[0]
    try:
        type_ = reduce(unify_types, [column.type for column in columns])
        return pa.concat_arrays([cast(column, type_) for column in columns])
    except (TypeQuarrelError, pa.ArrowInvalid):  # no common type, or none that keeps every value
        return to_column([value for column in columns for value in from_column(column)])


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Put batches behind one another; columns without a common type hold Python objects, each as it was.

    >>> from_column(joined([pa.record_batch({"x": [1]}), pa.record_batch({"x": ["a"]})])["x"])
    [1, 'a']
    """
    try:
        return concatenated(batches)
    except TypeQuarrelError:
        names = dict.fromkeys(name for batch in batches for name in batch.schema.names)
        parts = {n: [b[n] if n in b.schema.names else pa.nulls(b.num_rows) for b in batches] for n in names}
        return pa.RecordBatch.from_arrays([joined_column(part) for part in parts.values()], names=list(names))


def empty_columns(rows: int) -> pa.RecordBatch:
    """Make a batch that has rows but no columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def _from_numpy(values: NDArray[Any]) -> pa.Array:
    if values.dtype == object:
        return column_of(list(values))
    if values.ndim == 0:
        return _from_numpy(values.reshape(1))
    if values.ndim == 1:
        return array_of_numbers(values)
    if values.dtype.kind not in "biuf":
        return column_of(list(values))
    if values.ndim == 2:
        offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
        flat = array_of_numbers(values.reshape(-1))
        if values.size < 2**31:
            return pa.ListArray.from_arrays(offsets.astype(np.int32), flat)
        return pa.LargeListArray.from_arrays(offsets, flat)
    return stacked_tensor_array(values)


def _beyond_python(column: pa.Array) -> list[Any]:
    if not pa.types.is_temporal(column.type):
        return _from_nested(column)
    valid = column.is_valid().to_pylist()
    return [value if there else None for value, there in zip(column.to_numpy(zero_copy_only=False), valid, strict=True)]


def _from_nested(column: pa.Array) -> list[Any]:
    """Return structs and lists that hold tensors or objects, which Arrow would show as they are stored."""
    type_ = column.type
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        parts = zip(*(from_column(column.field(i)) for i in range(len(names))), strict=True)
        found: list[Any] = [dict(zip(names, values, strict=True)) for values in parts]
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        offsets, values = column.offsets.to_pylist(), from_column(column.values)
        found = [values[a:b] for a, b in pairwise(offsets)]
    else:
        found = column.to_pylist()
    return [value if there else None for value, there in zip(found, valid, strict=True)]


def _matrix_of_lists(column: pa.Array) -> NDArray[Any]:
    offsets = column.offsets.to_numpy()
    widths = np.diff(offsets)
    flat_type = column.type.value_type
    equal = column.null_count == 0 and len(widths) > 0 and bool((widths == widths[0]).all())
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if equal and pa.types.is_primitive(flat_type):
        return to_numpy(values).reshape(len(column), int(widths[0]))
    if (flat := numbers_of(values)) is not None:
        there = column.is_valid().to_pylist()
        bounds = pairwise((offsets - offsets[0]).tolist())
        return _objects([flat[a:b] if valid else None for (a, b), valid in zip(bounds, there, strict=True)])
    if pa.types.is_primitive(flat_type):
        return _objects([None if not v.is_valid else to_numpy(v.values) for v in column])
    return _objects(from_column(column))


def _objects(values: list[Any]) -> NDArray[Any]:
    result = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):  # `result[:] = values` would try to broadcast rows that are arrays
        result[i] = value
    return result
