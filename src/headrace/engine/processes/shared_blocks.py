"""Blocks in anonymous shared memory: one process writes, the other maps; handles travel, bytes do not."""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headrace.records.tensors  # noqa: F401 - registers the Arrow types that columns may have
from headrace.records.block import Block, Origin, Unit

if TYPE_CHECKING:
    from headrace.records.failure import RowFailure
    from headrace.records.position import Position

INLINE_BYTES = 64 * 1024
"""Below this size a copy through the socket costs less than a file descriptor and a mapping."""

_PROT_READ = 1
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class SharedFile:
    """An anonymous file with `size` bytes in it; whoever holds one closes it."""

    fd: int
    size: int

    def close(self) -> None:
        """Give the descriptor up; mappings of the file stay."""
        os.close(self.fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHead:
    """What travels beside the bytes of a block."""

    unit: Unit
    start: Position
    end: Position
    failures: tuple[RowFailure, ...]
    origin: Origin | None
    errors: int
    batch_bytes: int
    """Length of the Arrow stream; the ordinals follow it where `sparse`."""
    sparse: bool


def anonymous_file(name: str) -> int:
    """Open an empty file that no folder lists, and that is gone with its last descriptor and mapping."""
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create(name, os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    return fd


def pack_bytes(data: bytes) -> bytes | SharedFile:
    """Return small data as it is, and larger data in an anonymous file."""
    if len(data) < INLINE_BYTES:
        return data
    fd = anonymous_file("headrace-bytes")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    return SharedFile(fd, len(data))


def pack_block(block: Block) -> tuple[BlockHead, bytes | SharedFile]:
    """Encode a block: a small one as bytes, a larger one in an anonymous file, written once."""
    ordinals = None if block.ordinals is None else np.ascontiguousarray(block.ordinals, dtype=np.int64)
    size = block.nbytes + (0 if ordinals is None else ordinals.nbytes)
    payload: bytes | SharedFile
    if size < INLINE_BYTES:
        stream = pa.BufferOutputStream()
        batch_bytes = _write(block.batch, stream)
        payload = stream.getvalue().to_pybytes() + (b"" if ordinals is None else ordinals.tobytes())
    else:
        fd = anonymous_file("headrace-block")
        with open(fd, "wb", closefd=False) as file:
            batch_bytes = _write(block.batch, pa.PythonFile(file, "w"))
            if ordinals is not None:
                file.write(ordinals.data)
        payload = SharedFile(fd, os.fstat(fd).st_size)
    head = BlockHead(
        unit=block.unit,
        start=block.start,
        end=block.end,
        failures=block.failures,
        origin=block.origin,
        errors=block.errors,
        batch_bytes=batch_bytes,
        sparse=ordinals is not None,
    )
    return head, payload


class Parcel:
    """A packed block that can be sent more than once. Its bytes are in nobody's memory but the receiver's."""

    def __init__(self, block: Block) -> None:
        self.head, self._payload = pack_block(block)

    def payload(self) -> bytes | SharedFile:
        """Return the bytes to send; a file is closed by whoever sends it, and another one is left here."""
        if isinstance(self._payload, bytes):
            return self._payload
        return SharedFile(os.dup(self._payload.fd), self._payload.size)

    def block(self) -> Block:
        """Return the block again."""
        payload = self.payload()
        return unpack_block(self.head, pa.py_buffer(payload) if isinstance(payload, bytes) else mapped(payload))

    def close(self) -> None:
        """Let the bytes go; views of them stay."""
        if isinstance(self._payload, SharedFile):
            self._payload.close()
            self._payload = b""


def unpack_block(head: BlockHead, data: pa.Buffer) -> Block:
    """Decode a block whose columns are views of `data`, which stays as long as any of them."""
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


def mapped(file: SharedFile) -> pa.Buffer:
    """Map a shared file for reading, and close it; the mapping goes with the last reference to the buffer."""
    try:
        # The mmap module would keep a duplicate of the descriptor with every mapping, and run out of them.
        address = _libc.mmap(None, file.size, _PROT_READ, _MAP_SHARED, file.fd, 0)
    finally:
        file.close()
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {file.size} bytes of shared memory: {os.strerror(error)}")
    return pa.foreign_buffer(address, file.size, base=_Mapping(address, file.size))


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> int:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return int(sink.tell())


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,  # off_t, on every 64-bit system
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


_libc = _load_libc()


class _Mapping:
    """Owner of mapped memory."""

    __slots__ = ("_address", "_munmap", "_size")

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size
        self._munmap = _libc.munmap  # held here, since module globals may be gone when the interpreter ends

    def __del__(self) -> None:
        self._munmap(self._address, self._size)
