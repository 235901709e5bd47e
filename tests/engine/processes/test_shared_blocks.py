import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.processes.memory_maps import mapped
from headrace.engine.processes.shared_blocks import Parcel, pack_block, pack_bytes, unpack_block
from headrace.engine.processes.shared_files import SharedFile
from headrace.records.block import Block, Origin, Unit, dense_block
from headrace.records.columns import empty_columns
from headrace.records.failure import RowFailure


def there_and_back(block: Block) -> Block:
    head, payload = pack_block(block)
    return unpack_block(head, mapped(payload) if isinstance(payload, SharedFile) else pa.py_buffer(payload))


def assert_equal(left: Block, right: Block) -> None:
    assert left.batch.equals(right.batch, check_metadata=True)
    assert left.ordinal_array().tolist() == right.ordinal_array().tolist()
    for name in ("unit", "start", "end", "failures", "origin", "errors"):
        assert getattr(left, name) == getattr(right, name)


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=30),
    st.integers(0, 2**40),
    st.booleans(),
    st.integers(0, 10),
)
def test_small_blocks(texts, first, sparse, cut):
    failure = RowFailure(stage="map_1", ordinal=first, row="{}", error_type="ValueError", message="no")
    block = Block(
        batch=pa.record_batch({"text": pa.array(texts, pa.string())}).slice(min(cut, len(texts))),
        unit=Unit(7, (1, 0)),
        start=(first,),
        end=(first + 100, 3),
        failures=(failure,),
        origin=Origin("a.csv", base=3),
        errors=2,
    )
    if sparse:
        block = replace(block, ordinals=np.arange(block.num_rows, dtype=np.int64) * 2 + first)
    assert isinstance(pack_block(block)[1], bytes)
    assert_equal(there_and_back(block), block)


@pytest.mark.parametrize("sparse", [False, True])
def test_large_blocks_go_through_a_file(sparse):
    block = dense_block(pa.record_batch({"x": np.arange(100_000.0), "b": [b"1"] * 100_000}), split=0, first=5)
    if sparse:
        block = block.derive(block.batch.slice(1), np.arange(1, 100_000))
    head, payload = pack_block(block)
    assert isinstance(payload, SharedFile)
    assert_equal(unpack_block(head, mapped(payload)), block)


@pytest.mark.parametrize(
    "batch",
    [
        empty_columns(3),
        pa.record_batch({"d": pa.array(["a", "b", None]).dictionary_encode()}),
        pa.record_batch({"s": [{"x": [1, 2]}, None, {"x": None}]}),
        pa.record_batch({"n": pa.nulls(3)}),
        pa.record_batch({"x": [1, 2, 3]}).replace_schema_metadata({"k": "v"}),
    ],
    ids=["no columns", "dictionary", "nested", "null", "metadata"],
)
def test_columns_of_every_kind(batch):
    block = dense_block(batch, split=0, first=0)
    assert_equal(there_and_back(block), block)


def test_a_slice_takes_only_its_own_bytes():
    batch = pa.record_batch({"x": np.arange(1_000_000)}).slice(500_000, 20_000)
    _, payload = pack_block(dense_block(batch, split=0, first=0))
    assert payload.size < 200_000
    payload.close()


def test_received_memory_cannot_be_written_to():
    block = there_and_back(dense_block(pa.record_batch({"x": np.arange(100_000)}), split=0, first=0))
    column = block.batch.column("x").to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_small_bytes_stay_inline_and_large_ones_do_not():
    assert pack_bytes(b"abc") == b"abc"
    file = pack_bytes(bytes(100_000))
    assert isinstance(file, SharedFile)
    buffer = mapped(file)
    assert buffer.size == 100_000
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fd)


@pytest.mark.parametrize("rows", [3, 100_000])
def test_a_parcel_can_be_sent_again_and_holds_no_descriptor_when_it_is_closed(rows):
    block = dense_block(pa.record_batch({"x": np.arange(rows)}), split=0, first=5)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    parcel = Parcel(block)
    for _ in range(2):
        payload = parcel.payload()
        data = mapped(payload) if isinstance(payload, SharedFile) else pa.py_buffer(payload)
        assert_equal(unpack_block(parcel.head, data), block)
    again = parcel.block()
    parcel.close()
    parcel.close()
    assert_equal(again, block)
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before
