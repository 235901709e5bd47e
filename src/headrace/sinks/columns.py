"""What files can hold: columns checked, and turned from Headrace's own types into the formats'."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from headrace.errors import SinkError
from headrace.records.alike import without_arrays
from headrace.records.columns import from_column, to_column
from headrace.records.tensors import ObjectType, TensorType, nested_list_type
from headrace.records.types import TypeQuarrelError, cast, has_objects, unify_schemas, unify_types


def refuse_objects(schema: pa.Schema, *, sink: str) -> None:
    """Raise for the first column that holds Python objects, for files of columns that have one type.

    Raises:
        SinkError: names the column and the remedy.
    """
    for field in schema:
        if has_objects(field.type):
            raise SinkError(
                f"{sink}: column {field.name!r} holds Python objects, or arrays of different dtypes or numbers of "
                "dimensions, which this kind of file cannot hold; turn them into numbers, text, bytes, lists or dicts "
                "in a map step (pictures become alike with mode= and size= of read_images), or leave the column out "
                f"with drop({field.name!r})"
            )


def refuse_duplicates(schema: pa.Schema, *, sink: str) -> None:
    """Raise for a column name that appears twice."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SinkError(f"{sink}: column {name!r} appears twice; rename one of the two")


def without_objects(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with objects that are arrays, or hold some, as lists where these have one type.

    At no cost when there are no objects.
    """
    if not any(has_objects(field.type) for field in batch.schema):
        return batch
    columns = [_as_lists(c) if has_objects(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def widened(known: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the schema that holds the rows of both in files: arrays that differ are lists where that makes them alike.

    >>> a, b = (pa.schema({"m": TensorType(t, 2)}) for t in (pa.int8(), pa.float32()))
    >>> widened(a, b).field("m").type
    ListType(list<item: list<item: double>>)

    Raises:
        TypeQuarrelError: there is none.
    """
    wide = unify_schemas([known, new])
    if any(has_objects(field.type) for field in wide):
        with suppress(TypeQuarrelError):
            return unify_schemas([storable_schema(known), storable_schema(new)])
    return wide


def mixed(known: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the schema for files of text, which hold values of all kinds: those that do not go together are objects.

    >>> mixed(pa.schema({"x": pa.int64()}), pa.schema({"x": pa.string()})).field("x").type.extension_name
    'headrace.object'
    """
    schemas = known, new
    for name in [name for name in new.names if name in known.names]:
        try:
            unify_types(known.field(name).type, new.field(name).type)
        except TypeQuarrelError:
            schemas = tuple(s.set(s.get_field_index(name), pa.field(name, ObjectType())) for s in schemas)
    return unify_schemas(schemas)


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with tensors as nested lists, also inside structs and lists.

    >>> storable_schema(pa.schema({"m": TensorType(pa.int8(), 2)})).field("m").type
    ListType(list<item: list<item: int8>>)
    """
    return pa.schema([field.with_type(storable_type(field.type)) for field in schema])


def storable_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is written: tensors are nested lists, everything else stays."""
    if isinstance(type_, TensorType):
        return nested_list_type(type_)
    if isinstance(type_, pa.FixedShapeTensorType):
        return nested_list_type(TensorType(type_.value_type, len(type_.shape)))
    if isinstance(type_, pa.BaseExtensionType) and not isinstance(type_, pa.ExtensionType):
        return type_.storage_type
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(storable_type(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        kind = pa.large_list if pa.types.is_large_list(type_) else pa.list_
        return kind(type_.value_field.with_type(storable_type(type_.value_type)))
    return type_


def storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with tensors as nested lists, at no cost when there are none."""
    schema = storable_schema(batch.schema)
    if schema.equals(batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([storable_array(column) for column in batch.columns], schema=schema)


def storable_array(array: pa.Array) -> pa.Array:
    """Return a column in the type in which it is written."""
    to = storable_type(array.type)
    if to.equals(array.type):
        return array
    if isinstance(array.type, pa.FixedShapeTensorType):
        valid = array.is_valid().to_pylist()
        stack = array.to_numpy_ndarray()
        return pa.array([row.tolist() if there else None for row, there in zip(stack, valid, strict=True)], type=to)
    if isinstance(array.type, pa.BaseExtensionType) and not isinstance(array.type, pa.ExtensionType):
        return array.storage
    return cast(array, to)


def _as_lists(column: pa.Array) -> pa.Array:
    found = to_column([without_arrays(value) for value in from_column(column)])
    return column if has_objects(found.type) else found
