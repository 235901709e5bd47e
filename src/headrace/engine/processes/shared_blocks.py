"""Blocks in anonymous shared memory: one process writes, the other maps; handles travel, bytes do not."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

import headrace.records.tensors  # noqa: F401 - registers the Arrow types that columns may have
from headrace.engine.processes.memory_maps import mapped
from headrace.engine.processes.pool import Loan
from headrace.engine.processes.shared_files import SharedFile, anonymous_file
from headrace.records.block import Block, Origin, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.engine.processes.pool import Pool
    from headrace.records.failure import RowFailure
    from headrace.records.position import Position

INLINE_BYTES = 64 * 1024
"""Below this size a copy through the socket costs less than a file descriptor and a mapping."""


class BlockHead(NamedTuple):
    """What travels beside the bytes of a block."""

    unit: Unit
    start: Position
    end: Position
    failures: tuple[RowFailure, ...]
    origin: Origin | None
    errors: int
    batch_bytes: int
    """Length of the batch; the ordinals follow it where `sparse`."""
    sparse: bool
    schema: bytes | None
    """The schema of a batch that is no more than a message of Arrow; None: it is a stream, with its schema in it."""


def pack_bytes(data: bytes) -> bytes | SharedFile:
    """Return small data as it is, and larger data in an anonymous file."""
    if len(data) < INLINE_BYTES:
        return data
    fd = anonymous_file("headrace-bytes")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return SharedFile(fd, len(data))


def pack_block(block: Block, pool: Pool | None = None) -> tuple[BlockHead, bytes | SharedFile | Loan]:
    """Encode a block: a small one as bytes, a larger one in a buffer of the pool or a file of its own, written once."""
    ordinals = None if block.ordinals is None else np.ascontiguousarray(block.ordinals, dtype=np.int64)
    size = pa.ipc.get_record_batch_size(block.batch) + (0 if ordinals is None else ordinals.nbytes)
    payload: bytes | SharedFile | Loan
    schema = None
    if size < INLINE_BYTES:
        schema, data = _pack_small(block.batch)
        batch_bytes, payload = len(data), data if ordinals is None else data + ordinals.tobytes()
    else:
        batch_bytes, payload = _pack_large(block.batch, ordinals, pool)
    head = BlockHead(
        unit=block.unit,
        start=block.start,
        end=block.end,
        failures=block.failures,
        origin=block.origin,
        errors=block.errors,
        batch_bytes=batch_bytes,
        sparse=ordinals is not None,
        schema=schema,
    )
    return head, payload


def _pack_small(batch: pa.RecordBatch) -> tuple[bytes | None, bytes]:
    """Return schema and message of a batch, or None and a stream where there are dictionaries, which a message lacks.

    A stream of a small batch takes many times longer.
    """
    schema = batch.schema.serialize().to_pybytes()
    if not _known_schema(schema)[1]:
        return schema, batch.serialize().to_pybytes()
    stream = pa.BufferOutputStream()
    _write(batch, stream)
    return None, stream.getvalue().to_pybytes()


@functools.lru_cache(maxsize=256)
def _known_schema(serialized: bytes) -> tuple[pa.Schema, bool]:
    """Return a schema, and whether any of its columns has a dictionary."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return schema, any(_has_dictionary(type_) for type_ in schema.types)


def _has_dictionary(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return _has_dictionary(type_.storage_type)
    inside = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_dictionary(type_) or any(_has_dictionary(one) for one in inside)


def _pack_large(
    batch: pa.RecordBatch, ordinals: NDArray[np.int64] | None, pool: Pool | None
) -> tuple[int, SharedFile | Loan]:
    """Write a batch and its ordinals; return the length of the batch alone too."""
    if pool is not None:
        batch_bytes = _write(batch, pa.MockOutputStream())
        size = batch_bytes + (0 if ordinals is None else ordinals.nbytes)
        if (place := pool.take(size)) is not None:
            sink = pa.FixedSizeBufferWriter(place.memory())
            _write(batch, sink)
            if ordinals is not None:
                sink.write(ordinals.data)
            return batch_bytes, Loan(place, size)
    fd = anonymous_file("headrace-block")
    with open(fd, "wb", closefd=False) as file:
        batch_bytes = _write(batch, pa.PythonFile(file, "w"))
        if ordinals is not None:
            file.write(ordinals.data)
    return batch_bytes, SharedFile(fd, os.fstat(fd).st_size)


class Parcel:
    """A packed block that can be sent more than once. Its bytes are in nobody's memory but the receiver's."""

    def __init__(self, block: Block, pool: Pool | None = None) -> None:
        """Pack a block, for the receiver whose `pool` it is at first."""
        self.head, self._payload = pack_block(block, pool)

    def payload(self, pool: Pool | None = None) -> bytes | SharedFile | Loan:
        """Return the bytes to send; a file is closed by whoever sends it, and another one is left here.

        A buffer of another pool than that of the receiver goes as a file.
        """
        if isinstance(self._payload, bytes):
            return self._payload
        if isinstance(self._payload, SharedFile):
            return SharedFile(os.dup(self._payload.fd), self._payload.size)
        if pool is not None and pool.has(self._payload.place):
            return self._payload
        return self._payload.place.copy_of_file(self._payload.size)

    def block(self) -> Block:
        """Return the block again."""
        payload = self.payload()
        assert not isinstance(payload, Loan)
        return unpack_block(self.head, pa.py_buffer(payload) if isinstance(payload, bytes) else mapped(payload))

    def close(self) -> None:
        """Let the bytes go; views of them stay."""
        if isinstance(self._payload, SharedFile):
            self._payload.close()
        elif isinstance(self._payload, Loan):
            self._payload.place.let_go()
        self._payload = b""


def unpack_block(head: BlockHead, data: pa.Buffer) -> Block:
    """Decode a block whose columns are views of `data`, which stays as long as any of them."""
    if head.schema is not None:
        batch = pa.ipc.read_record_batch(data.slice(0, head.batch_bytes), _known_schema(head.schema)[0])
    else:
        with pa.ipc.open_stream(data.slice(0, head.batch_bytes)) as reader:
            batch = reader.read_next_batch()
    ordinals = np.frombuffer(data.slice(head.batch_bytes), dtype=np.int64) if head.sparse else None
    return Block(
        batch=batch,
        unit=head.unit,
        start=head.start,
        end=head.end,
        ordinals=ordinals,
        failures=head.failures,
        origin=head.origin,
        errors=head.errors,
    )


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> int:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return int(sink.tell())
