"""Plain data as bytes to hash: numbers, text, arrays, Arrow data, tensors, files."""

from __future__ import annotations

import hashlib
import io
import pathlib
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

LEAVES: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    type(...): lambda _: b"",
    type(NotImplemented): lambda _: b"",
    bool: lambda v: b"1" if v else b"0",
    int: lambda v: v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True),
    float: lambda v: b"nan" if v != v else struct.pack("<d", v),
    complex: lambda v: struct.pack("<dd", v.real, v.imag),
    str: lambda v: v.encode("utf8", "surrogatepass"),
    bytes: lambda v: v,
    bytearray: bytes,
}
"""How the bytes of the simplest types are made; exact types only."""

Arrow = (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)


def array_bytes(array: NDArray[Any]) -> memoryview:
    r"""Return the bytes of an array of plain numbers, row by row.

    >>> bytes(array_bytes(np.array([[1, 2], [3, 4]], dtype="uint8").T))
    b'\x01\x03\x02\x04'
    """
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def arrow_digest(data: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray) -> bytes:
    """Return the digest of Arrow data, however it is cut into chunks or slices.

    >>> whole = pa.array([1, 2, None])
    >>> arrow_digest(whole.slice(1)) == arrow_digest(pa.array([2, None]))
    True
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif not isinstance(data, pa.Table):
        data = pa.table({"": data})
    writes = _HashWriter()
    with pa.ipc.new_stream(pa.PythonFile(writes, "w"), data.schema) as writer:
        writer.write_table(data.combine_chunks())
    return writes.digest()


def arrow_type_bytes(type_: pa.Schema | pa.DataType) -> memoryview:
    """Return a schema or type as bytes."""
    schema = type_ if isinstance(type_, pa.Schema) else pa.schema([("", type_)])
    return memoryview(schema.serialize())


def tensor_array(obj: Any) -> NDArray[Any] | None:
    """Return the bytes of a torch tensor as an array, without importing torch; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.Tensor) or obj.layout is not torch.strided:
        return None
    flat = obj.detach().cpu().contiguous().reshape(-1)
    data: NDArray[Any] = flat.view(torch.uint8).numpy()
    return data


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, or of all files of a folder with their names, as hex; every byte is read.

    Raises:
        OSError: it cannot be read.
    """
    root = pathlib.Path(path)
    if not root.is_dir():
        with root.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    total = hashlib.sha256()
    for file_path in sorted(p for p in root.rglob("*") if p.is_file()):
        total.update(f"{file_path.relative_to(root).as_posix()}\0{file_digest(file_path)}\n".encode())
    return total.hexdigest()


class _HashWriter(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return memoryview(data).nbytes

    def digest(self) -> bytes:
        return self._hash.digest()
