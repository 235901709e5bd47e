"""What files can hold: columns checked, and turned from Headrace's own types into the formats'."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import SinkError
from headrace.records.alike import without_arrays
from headrace.records.columns import from_column, to_column
from headrace.records.tensors import ObjectType, TensorType, nested_list_type, nested_lists, tensor_array
from headrace.records.types import (
    TypeQuarrelError,
    cast,
    conform,
    has_objects,
    is_list,
    once_a_type,
    unify_schemas,
    unify_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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


def refuse_untold(schema: pa.Schema, encode: Callable[[pa.RecordBatch], object], *, sink: str) -> None:
    """Raise for the first column of a type that `encode` cannot encode, found out on no rows at all."""
    for field in schema:
        try:
            encode(pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], schema=pa.schema([field])))
        except (pa.ArrowException, OSError) as error:
            raise SinkError(
                f"{sink}: column {field.name!r} is {field.type}, which this kind of file cannot hold ({error}); cast "
                f"it in a map_batches step, or leave it out with drop({field.name!r})"
            ) from error


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

    Integers beside larger ones, of 64 bits without a sign, have none either; those below 0 are refused when they come.

    >>> a, b = (pa.schema({"m": TensorType(t, 2)}) for t in (pa.int8(), pa.float32()))
    >>> widened(a, b).field("m").type
    ListType(list<item: list<item: double>>)

    Raises:
        TypeQuarrelError: there is none.
    """
    wide = unify_schemas([_unsigned(known, new), _unsigned(new, known)])
    if any(has_objects(field.type) for field in wide):
        with suppress(TypeQuarrelError):
            return unify_schemas([storable_schema(known), storable_schema(new)])
    return wide


def conformed(batch: pa.RecordBatch, schema: pa.Schema, *, sink: str) -> pa.RecordBatch:
    """Return the batch with the columns and types of a wider schema.

    Raises:
        SinkError: a value would be changed.
    """
    try:
        return conform(batch, schema)
    except TypeQuarrelError as error:
        raise SinkError(
            f"{sink}: {error}; make the step that writes it answer one type, or pass dtypes= where it is read"
        ) from error


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
    """Return the schema with every column in a type that Parquet readers read back, also inside structs and lists.

    >>> storable_schema(pa.schema({"m": TensorType(pa.int8(), 2)})).field("m").type
    ListType(list<item: list<item: int8>>)
    """
    return pa.schema([field.with_type(storable_type(field.type)) for field in schema])


def storable_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is written: tensors are nested lists, run ends are spelt out.

    Lists of fixed size are lists: Parquet has no others, and pyarrow reads no nulls among those of fixed size.
    """
    if isinstance(type_, TensorType):
        return nested_list_type(type_)
    if isinstance(type_, pa.FixedShapeTensorType):
        return nested_list_type(_tensor_type(type_))
    if pa.types.is_run_end_encoded(type_):
        return storable_type(type_.value_type)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(storable_type(field.type)) for field in type_])
    if is_list(type_):
        kind = pa.large_list if pa.types.is_large_list(type_) else pa.list_
        return kind(type_.value_field.with_type(storable_type(type_.value_type)))
    return type_


def storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch in the types of `storable_schema`, at no cost where these are its own."""
    if all(map(_is_storable, batch.schema.types)):
        return batch
    schema = storable_schema(batch.schema)
    return pa.RecordBatch.from_arrays([storable_array(column) for column in batch.columns], schema=schema)


@once_a_type
def _is_storable(type_: pa.DataType) -> bool:
    return bool(storable_type(type_).equals(type_))


def storable_array(array: pa.Array) -> pa.Array:
    """Return a column in the type in which it is written."""
    to = storable_type(array.type)
    if to.equals(array.type):
        return array
    if isinstance(array.type, pa.FixedShapeTensorType):
        rows = from_column(array)  # in the order of dimensions that a permutation says
        return nested_lists(tensor_array(rows, like=_tensor_type(array.type)))
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc  # slow to import, and seldom needed

        return storable_array(pc.run_end_decode(array))
    return cast(array, to)


def _unsigned(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the schema with integers unsigned where the other's are: a batch of ids may have small ones only."""
    large = {field.name for field in other if pa.types.is_uint64(field.type)}
    return pa.schema([f.with_type(pa.uint64()) if f.name in large and pa.types.is_int64(f.type) else f for f in schema])


def _tensor_type(type_: pa.FixedShapeTensorType) -> TensorType:
    return TensorType(type_.value_type, len(type_.shape))


def _as_lists(column: pa.Array) -> pa.Array:
    found = to_column([without_arrays(value) for value in from_column(column)])
    return column if has_objects(found.type) else found
