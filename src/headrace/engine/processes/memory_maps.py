"""Mappings of shared memory that hold no descriptor: the mmap module would keep one with every mapping."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from headrace.engine.processes.shared_files import SharedFile

_PROT_READ, _PROT_WRITE = 1, 2
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value


def mapped(file: SharedFile) -> pa.Buffer:
    """Map a shared file for reading, and close it; the mapping goes with the last reference to the buffer."""
    try:
        mapping = map_shared(file.fd, file.size, offset=file.offset)
    finally:
        file.close()
    return pa.foreign_buffer(mapping.address, file.size, base=mapping)


def map_shared(fd: int, size: int, *, offset: int = 0, writable: bool = False) -> Mapping:
    """Map a part of a file; the descriptor stays the caller's."""
    protection = _PROT_READ | _PROT_WRITE if writable else _PROT_READ
    address = _libc.mmap(None, size, protection, _MAP_SHARED, fd, offset)
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {size} bytes of shared memory: {os.strerror(error)}")
    return Mapping(address, size)


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


class Mapping:
    """Owner of mapped memory, which goes with it."""

    __slots__ = ("_munmap", "_size", "address")

    def __init__(self, address: int, size: int) -> None:
        self.address, self._size = address, size
        self._munmap = _libc.munmap  # held here, since module globals may be gone when the interpreter ends

    def __del__(self) -> None:
        self._munmap(self.address, self._size)
