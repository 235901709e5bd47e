"""How types go together: the lattice that files, batches and parts are unified in.

null goes with any type, int widens to float and to decimal, decimals and times to the finer of them (in UTC where zones
differ), lists and structs unify by their parts, and what is pickled goes with all
(arrays of different dtypes or numbers of dimensions become pickled objects, so that none of them is changed). Arrays
beside lists that are nested as deep, or empty, become nested lists. Anything else is a quarrel, and the caller decides
whose error that is.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from headrace.records.tensors import (
    ObjectType,
    TensorType,
    nested_list_type,
    nested_lists,
    object_array,
    tensor_array,
    tensors_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

AnswerT = TypeVar("AnswerT")


class TypeQuarrelError(Exception):
    """Two types have no common type; `column` is the path of the column or nested field."""

    def __init__(self, column: str, left: pa.DataType, right: pa.DataType, why: str = "") -> None:
        self.column, self.left, self.right = column, left, right
        super().__init__(f"column {column!r} is {left} and {right}{why}")


def unify_types(left: pa.DataType, right: pa.DataType, column: str = "") -> pa.DataType:
    """Return the smallest type that holds both.

    >>> unify_types(pa.null(), pa.string()), unify_types(pa.int64(), pa.float64())
    (DataType(string), DataType(double))

    Raises:
        TypeQuarrelError: there is none.
    """
    if left.equals(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_null(right):
        return left
    if is_number(left) and is_number(right):
        return _unify_numbers(left, right, column)
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):
        return _unify_times(left, right, column)
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        return _unify_decimals(left, right, column)
    if is_list(left) and is_list(right):
        item = unify_types(left.value_type, right.value_type, f"{column}[]")
        large = pa.types.is_large_list(left) or pa.types.is_large_list(right)
        return pa.large_list(item) if large else pa.list_(item)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        return _unify_structs(left, right, column)
    if isinstance(left, (ObjectType, TensorType)) or isinstance(right, (ObjectType, TensorType)):
        return _unify_arrays(left, right, column)
    if pa.types.is_dictionary(left) or pa.types.is_dictionary(right):
        return unify_types(_decoded(left), _decoded(right), column)
    for same, wide in ((is_text, pa.large_string()), (is_bytes, pa.large_binary())):
        if same(left) and same(right):
            return wide
    raise TypeQuarrelError(column, left, right)


def unify_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the union of all columns, in order of first appearance, each with its unified type.

    >>> a, b = pa.schema({"id": pa.int64(), "x": pa.null()}), pa.schema({"x": pa.string()})
    >>> unify_schemas([a, b]).types
    [DataType(int64), DataType(string)]
    """
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            if known is None:
                fields[field.name] = field.with_nullable(True)
            elif not known.type.equals(field.type):
                fields[field.name] = known.with_type(unify_types(known.type, field.type, field.name))
    return pa.schema(list(fields.values()))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns and types of a wider schema; missing columns become null.

    The schema must be one that `unify_schemas` made with the batch's own schema among its inputs.

    Raises:
        TypeQuarrelError: a value would be changed, such as an integer beyond 2**53 by becoming a float.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(_cast_column(batch.column(index), field))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast_column(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return cast(array, field.type)
    except pa.ArrowInvalid as error:
        raise TypeQuarrelError(field.name, array.type, field.type, f", which would change a value ({error})") from error


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Put batches (at least one) behind one another under their common schema.

    >>> concatenated([pa.record_batch({"x": [1]}), pa.record_batch({"x": [0.5], "y": ["a"]})]).to_pydict()
    {'x': [1.0, 0.5], 'y': [None, 'a']}

    Raises:
        TypeQuarrelError: they have none.
    """
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    if not all(batch.schema.equals(schema) for batch in batches):
        schema = unify_schemas([batch.schema for batch in batches])
    return pa.concat_batches([conform(batch, schema) for batch in batches])


def cast(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast an array to a wider type, also inside lists and structs where fields may be missing."""
    if array.type.equals(to):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), to)
    if isinstance(to, ObjectType):
        return object_array(_python_values(array))
    if isinstance(array.type, TensorType) and not isinstance(to, TensorType):
        return cast(nested_lists(array), to)
    if isinstance(to, TensorType):
        dtype = to.value_type.to_pandas_dtype()
        return tensor_array([None if t is None else t.astype(dtype) for t in tensors_of(array)], like=to)
    if pa.types.is_struct(to):
        children = []
        for i in range(to.num_fields):
            field = to.field(i)
            index = array.type.get_field_index(field.name)
            child = pa.nulls(len(array), field.type) if index < 0 else cast(array.field(index), field.type)
            children.append(child)
        if not children:
            return pa.nulls(len(array), to) if array.null_count else pa.Array.from_buffers(to, len(array), [None])
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(to), mask=mask)
    if is_list(to) and is_list(array.type):
        if pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_type))
        if array.offset:
            array = pa.concat_arrays([array, array.slice(0, 0)])  # a copy that begins at its own offset 0
        kind = pa.LargeListArray if pa.types.is_large_list(to) else pa.ListArray
        offsets = array.offsets.cast(pa.int64()) if kind is pa.LargeListArray else array.offsets
        values = cast(array.values, to.value_type)
        return kind.from_arrays(offsets, values, type=to, mask=array.is_null() if array.null_count else None)
    import pyarrow.compute as pc  # takes as long as the rest of Headrace to import, and is seldom needed

    return pc.cast(array, to)


def is_number(type_: pa.DataType) -> bool:
    """Say whether values are integers or floats (booleans and decimals are not)."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def is_text(type_: pa.DataType) -> bool:
    """Say whether values are text."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Say whether values are bytes of any length."""
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))


def is_list(type_: pa.DataType) -> bool:
    """Say whether values are lists of any kind."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def once_a_type(function: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """Keep what a function says of a type (and of what else it gets): columns of every block are asked the same.

    Extension types are asked anew, since those of other libraries need not be hashable.
    """
    kept = lru_cache(1024)(function)

    @wraps(function)
    def answer(type_: pa.DataType, *rest: Any) -> AnswerT:
        return function(type_, *rest) if isinstance(type_, pa.BaseExtensionType) else kept(type_, *rest)

    return answer


@once_a_type
def has_objects(type_: pa.DataType) -> bool:
    """Say whether there are Python objects in a column, at any depth."""
    return any(isinstance(inner, ObjectType) for inner in types_within(type_))


def types_within(type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all types inside it."""
    yield type_
    if isinstance(type_, pa.BaseExtensionType):
        yield from types_within(type_.storage_type)
    elif pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        yield from types_within(type_.value_type)
    else:
        for i in range(type_.num_fields):
            yield from types_within(type_.field(i).type)


def _unify_numbers(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        signed = pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right)
        if signed:
            return left if left.bit_width >= right.bit_width else right
        unsigned = left if pa.types.is_unsigned_integer(left) else right
        if unsigned.bit_width == 64:
            raise TypeQuarrelError(column, left, right)  # no integer holds both, and floats would round identifiers
        return pa.int64()
    if pa.types.is_floating(left) and pa.types.is_floating(right):
        return left if left.bit_width >= right.bit_width else right
    return pa.float64()


_UNITS = ("s", "ms", "us", "ns")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Of integers, by their bits."""


def _unify_times(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.date32()
    kinds = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time)
    if not any(same(left) and same(right) for same in kinds):
        raise TypeQuarrelError(column, left, right)
    unit = max(left.unit, right.unit, key=_UNITS.index)
    if pa.types.is_duration(left):
        return pa.duration(unit)
    if pa.types.is_time(left):
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if (left.tz is None) != (right.tz is None):
        raise TypeQuarrelError(column, left, right)
    return pa.timestamp(unit, left.tz if left.tz == right.tz else "UTC")


def _unify_decimals(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    if not all(pa.types.is_decimal(t) or pa.types.is_integer(t) for t in (left, right)):
        raise TypeQuarrelError(column, left, right)
    sizes = [(t.precision, t.scale) if pa.types.is_decimal(t) else (_DIGITS[t.bit_width], 0) for t in (left, right)]
    scale = max(s for _, s in sizes)
    precision = scale + max(p - s for p, s in sizes)
    if precision > 76:
        raise TypeQuarrelError(column, left, right)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _unify_arrays(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        floats = pa.types.is_floating(left.value_type) and pa.types.is_floating(right.value_type)
        if left.ndim == right.ndim and floats:
            return TensorType(_unify_numbers(left.value_type, right.value_type, column), left.ndim)
        return ObjectType()
    if isinstance(left, ObjectType) or isinstance(right, ObjectType):
        return ObjectType()
    tensor, other = (left, right) if isinstance(left, TensorType) else (right, left)
    depth, item = _nesting(other)
    if (depth == tensor.ndim and is_number(item)) or (0 < depth <= tensor.ndim and pa.types.is_null(item)):
        return unify_types(nested_list_type(tensor), other, column)
    if depth and is_number(item):
        return ObjectType()  # arrays of one dimension beside arrays of more
    raise TypeQuarrelError(column, left, right)


def _nesting(type_: pa.DataType) -> tuple[int, pa.DataType]:
    """Return how deep lists are nested, and what is in the innermost."""
    depth = 0
    while is_list(type_):
        depth, type_ = depth + 1, type_.value_type
    return depth, type_


def _python_values(array: pa.Array) -> list[Any]:
    from headrace.records.columns import from_column

    values = from_column(array)
    if is_list(array.type) and is_number(array.type.value_type):
        dtype = array.type.value_type.to_pandas_dtype()
        return [None if v is None else np.asarray(v, dtype=dtype) for v in values]
    return values


def _unify_structs(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    fields = {field.name: field for field in left}
    for field in right:
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field
        else:
            both = unify_types(known.type, field.type, f"{column}.{field.name}")
            fields[field.name] = pa.field(field.name, both)
    return pa.struct(list(fields.values()))


def _decoded(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
