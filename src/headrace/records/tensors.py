"""Arrow types for what Arrow lacks: arrays of two and more dimensions, and plain Python objects.

A column's type depends on dtype and number of dimensions alone, never on whether the rows of one batch happen to have
equal shapes. Hence one dimension is a list, and two or more are always the canonical variable-shape tensor
(https://arrow.apache.org/docs/format/CanonicalExtensions.html#variable-shape-tensor). Empty arrays of one dimension,
which is what code makes where it found nothing, say nothing of what it would have found: alone they are lists of nulls.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class TensorType(pa.ExtensionType):  # type: ignore[misc]
    """Arrays of `ndim` ≥ 2 dimensions, each row with a shape of its own."""

    def __init__(self, value_type: pa.DataType, ndim: int) -> None:
        self.value_type, self.ndim = value_type, ndim
        storage = pa.struct({"data": pa.large_list(value_type), "shape": pa.list_(pa.int32(), ndim)})
        super().__init__(storage, "headrace.tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"ndim": self.ndim}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> TensorType:
        return cls(storage_type.field("data").type.value_type, json.loads(serialized)["ndim"])

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self.value_type, self.ndim)


class ObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Python objects, pickled by this run and never read back from a file."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "headrace.object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage_type: pa.DataType, _serialized: bytes) -> ObjectType:
        return cls()

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectType, ()


for _type in (TensorType(pa.uint8(), 2), ObjectType()):
    # Known to Arrow's readers so that blocks keep their types between processes. ObjectType in a file is never
    # unpickled: sources refuse the column.
    pa.register_extension_type(_type)


def has_objects(type_: pa.DataType) -> bool:
    """Say whether a column holds pickled objects, at any depth."""
    return isinstance(type_, ObjectType) or any(has_objects(type_.field(i).type) for i in range(type_.num_fields))


def tensor_array(arrays: Sequence[NDArray[Any] | None], *, like: TensorType | None = None) -> pa.ExtensionArray:
    """Make a tensor column from arrays of equal dtype and number of dimensions (None is null).

    `like` gives the type where it may be that all are None.

    >>> tensor_array([np.zeros((2, 3), "uint8"), None]).type.ndim
    2
    """
    present = [a for a in arrays if a is not None]
    type_ = like or TensorType(pa.from_numpy_dtype(np.result_type(*present)), present[0].ndim)
    dtype, ndim = type_.value_type.to_pandas_dtype(), type_.ndim
    sizes = np.array([0 if a is None else a.size for a in arrays], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = [np.ascontiguousarray(a, dtype=dtype).reshape(-1) for a in present]
    values = np.concatenate(flat) if flat else np.empty(0, dtype=dtype)
    data = pa.LargeListArray.from_arrays(offsets, pa.array(values, type_.value_type))
    shapes = np.array([(0,) * ndim if a is None else a.shape for a in arrays], dtype=np.int32)
    shape = pa.FixedSizeListArray.from_arrays(pa.array(shapes.reshape(-1)), type=pa.list_(pa.int32(), ndim))
    mask = pa.array([a is None for a in arrays]) if len(present) < len(arrays) else None
    storage = pa.StructArray.from_arrays([data, shape], fields=list(type_.storage_type), mask=mask)
    return pa.ExtensionArray.from_storage(type_, storage)


def stacked_tensor_array(stack: NDArray[Any]) -> pa.ExtensionArray:
    """Make a tensor column from one array whose first dimension is the rows, without copying it."""
    rows, ndim = stack.shape[0], stack.ndim - 1
    type_ = TensorType(pa.from_numpy_dtype(stack.dtype), ndim)
    size = int(np.prod(stack.shape[1:]))
    offsets = np.arange(rows + 1, dtype=np.int64) * size
    data = pa.LargeListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(stack).reshape(-1)))
    shapes = np.tile(np.array(stack.shape[1:], dtype=np.int32), rows)
    shape = pa.FixedSizeListArray.from_arrays(pa.array(shapes), type=pa.list_(pa.int32(), ndim))
    storage = pa.StructArray.from_arrays([data, shape], fields=list(type_.storage_type))
    return pa.ExtensionArray.from_storage(type_, storage)


def tensors_of(array: pa.ExtensionArray) -> list[NDArray[Any] | None]:
    """Return the rows of a tensor column as numpy arrays that share its memory."""
    storage = array.storage
    data, shapes = storage.field(0), storage.field(1)
    offsets = data.offsets.to_numpy()
    values = data.values.to_numpy(zero_copy_only=False)
    start = shapes.offset * array.type.ndim
    shape = shapes.values.fill_null(0).to_numpy(zero_copy_only=False)[start:].reshape(-1, array.type.ndim)[: len(array)]
    valid = storage.is_valid().to_numpy(zero_copy_only=False)
    return [values[offsets[i] : offsets[i + 1]].reshape(shape[i]) if valid[i] else None for i in range(len(array))]


def nested_lists(array: pa.ExtensionArray) -> pa.Array:
    """Return a tensor column as nested lists, the form in which it is written to files.

    >>> nested_lists(tensor_array([np.array([[1, 2]]), None, np.zeros((2, 0), int)])).to_pylist()
    [[[1, 2]], None, [[], []]]
    """
    storage = array.storage
    valid = storage.is_valid().to_numpy(zero_copy_only=False)
    data, shapes = storage.flatten()
    values = data.flatten()
    shape = np.zeros((len(array), array.type.ndim), dtype=np.int64)
    shape[valid] = shapes.filter(storage.is_valid()).flatten().to_numpy().reshape(-1, array.type.ndim)
    for axis in reversed(range(array.type.ndim)):
        lists = shape[:, :axis].prod(axis=1)  # so many lists of this depth a row; where it is 0 nothing is left to cut
        offsets = np.concatenate([[0], np.cumsum(np.repeat(shape[:, axis], lists))]).astype(np.int32)
        mask = pa.array(~valid) if axis == 0 and not valid.all() else None
        values = pa.ListArray.from_arrays(offsets, values, mask=mask)
    return values


def nested_list_type(type_: TensorType) -> pa.DataType:
    """Return the type of a tensor column as nested lists.

    >>> nested_list_type(TensorType(pa.int8(), 2))
    ListType(list<item: list<item: int8>>)
    """
    nested = type_.value_type
    for _ in range(type_.ndim):
        nested = pa.list_(nested)
    return nested


def object_array(values: Sequence[Any]) -> pa.ExtensionArray:
    """Pickle Python objects into a column that lives inside one run only."""
    storage = pa.array([None if v is None else cloudpickle.dumps(v) for v in values], type=pa.large_binary())
    return pa.ExtensionArray.from_storage(ObjectType(), storage)


def objects_of(array: pa.ExtensionArray) -> list[Any]:
    """Unpickle a column that `object_array` made in this run."""
    return [None if v is None else pickle.loads(v) for v in array.storage.to_pylist()]
