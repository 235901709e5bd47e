from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.records.tensors import (
    ObjectType,
    TensorType,
    nested_lists,
    object_array,
    objects_of,
    stacked_tensor_array,
    tensor_array,
    tensors_of,
)

ARRAYS = st.lists(
    st.none() | hnp.arrays(np.int16, st.tuples(st.integers(0, 3), st.integers(0, 3))), min_size=1, max_size=5
).filter(lambda arrays: any(a is not None for a in arrays))


@given(ARRAYS, st.integers(0, 4))
def test_tensors_come_back_from_any_slice(arrays: list[np.ndarray | None], start: int) -> None:
    column = tensor_array(arrays).slice(start)
    column.validate(full=True)
    got = tensors_of(column)
    assert len(got) == len(arrays[start:])
    for a, b in zip(got, arrays[start:], strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or (a.shape == b.shape and np.array_equal(a, b))


@given(ARRAYS)
def test_tensors_travel_in_ipc(arrays: list[np.ndarray | None]) -> None:
    batch = pa.record_batch({"t": tensor_array(arrays), "o": object_array(arrays)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch.slice(1))
    back = pa.ipc.open_stream(sink.getvalue()).read_all().combine_chunks()
    assert back.schema == batch.schema
    if back.num_rows:
        shapes = [None if a is None else a.shape for a in arrays[1:]]
        assert [None if a is None else a.shape for a in tensors_of(back["t"].chunk(0))] == shapes
        assert [None if a is None else a.shape for a in objects_of(back["o"].chunk(0))] == shapes


def test_a_stack_is_not_copied() -> None:
    stack = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    column = stacked_tensor_array(stack)
    assert np.shares_memory(tensors_of(column)[0], stack)
    assert np.array_equal(np.stack([t for t in tensors_of(column) if t is not None]), stack)
    assert column.type == tensor_array(list(stack)).type


def test_nested_lists() -> None:
    column = tensor_array([np.array([[1, 2], [3, 4]]), None, np.zeros((0, 4), int)])
    assert nested_lists(column).to_pylist() == [[[1, 2], [3, 4]], None, []]
    assert nested_lists(column).type == pa.list_(pa.list_(pa.int64()))


def test_all_null_with_a_type() -> None:
    column = tensor_array([None, None], like=TensorType(pa.uint8(), 3))
    assert tensors_of(column) == [None, None]


def test_types_are_pickled() -> None:
    for type_ in (TensorType(pa.float32(), 3), ObjectType()):
        assert pickle.loads(pickle.dumps(type_)) == type_


def test_functions_travel_as_objects() -> None:
    (function,) = objects_of(object_array([lambda x: x + 1]))
    assert function(1) == 2
