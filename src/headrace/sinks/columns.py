"""What files can hold: columns checked, and turned from Headrace's own types into the formats'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import SinkError
from headrace.records.tensors import ObjectType, TensorType, nested_lists

if TYPE_CHECKING:
    from collections.abc import Iterator


def refuse_objects(schema: pa.Schema, *, sink: str) -> None:
    """Raise for the first column that holds Python objects, which no file can hold.

    Raises:
        SinkError: names the column and the remedy.
    """
    for field in schema:
        if any(isinstance(t, ObjectType) for t in _types_within(field.type)):
            raise SinkError(
                f"{sink}: column {field.name!r} holds Python objects, which no file can hold; turn them into numbers,"
                f" text, bytes, lists or dicts in a map step, or leave the column out with drop([{field.name!r}])"
            )


def refuse_duplicates(schema: pa.Schema, *, sink: str) -> None:
    """Raise for a column name that appears twice."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SinkError(f"{sink}: column {name!r} appears twice; rename one of the two")


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with tensors as nested lists.

    >>> storable_schema(pa.schema({"m": TensorType(pa.int8(), 2)})).field("m").type
    ListType(list<item: list<item: int8>>)
    """
    return pa.schema([field.with_type(storable_type(field.type)) for field in schema])


def storable_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is written: tensors are nested lists, everything else stays."""
    if isinstance(type_, TensorType):
        return _nested(type_.value_type, type_.ndim)
    if isinstance(type_, pa.FixedShapeTensorType):
        return _nested(type_.value_type, len(type_.shape))
    if isinstance(type_, pa.BaseExtensionType) and not isinstance(type_, pa.ExtensionType):
        return type_.storage_type if not isinstance(type_, ObjectType) else type_
    return type_


def storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with tensors as nested lists, at no cost when there are none."""
    if not any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays(
        [_storable_array(column) for column in batch.columns], schema=storable_schema(batch.schema)
    )


def _storable_array(array: pa.Array) -> pa.Array:
    if isinstance(array.type, TensorType):
        return nested_lists(array)
    if isinstance(array.type, pa.FixedShapeTensorType):
        valid = array.is_valid().to_pylist()
        stack = array.to_numpy_ndarray()
        rows = [row.tolist() if there else None for row, there in zip(stack, valid, strict=True)]
        return pa.array(rows, type=storable_type(array.type))
    return array if storable_type(array.type).equals(array.type) else array.storage


def _nested(type_: pa.DataType, ndim: int) -> pa.DataType:
    for _ in range(ndim):
        type_ = pa.list_(type_)
    return type_


def _types_within(type_: pa.DataType) -> Iterator[pa.DataType]:
    yield type_
    for i in range(type_.num_fields):
        yield from _types_within(type_.field(i).type)
