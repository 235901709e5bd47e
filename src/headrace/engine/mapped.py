"""Objects in files that all processes of a machine map: what is large in them is in memory once.

An object is pickled with its large buffers (arrays of numpy, Arrow and what is made of them) beside it. Those are
mapped, as are indexes of Faiss; only the rest is each process's own.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedWriter
    from pathlib import Path

SMALL_BYTES = 4096
"""Buffers smaller than that are each process's own: to map them would cost more."""
_ALIGNMENT = 64
_PICKLE, _BUFFERS = "object.pickle", "buffers"


@dataclass(frozen=True, slots=True)
class MappedObject:
    """An object in a folder. Arrays in what is loaded cannot be written to."""

    folder: str
    places: tuple[tuple[int, int], ...]
    """Where its buffers lie: offset and size."""
    mapped_bytes: int
    """What is in memory once a machine."""
    process_bytes: int
    """What each process has for itself, as it is pickled."""

    @property
    def key(self) -> str:
        """What tells it from all others of this machine."""
        return self.folder

    def load(self) -> Any:
        """Map the buffers, and make the rest."""
        with open(os.path.join(self.folder, _PICKLE), "rb") as file:
            return pickle.load(file, buffers=self._buffers())  # this run's own

    def _buffers(self) -> Iterator[memoryview]:
        if not self.places:
            return
        with open(os.path.join(self.folder, _BUFFERS), "rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for offset, size in self.places:
            yield whole[offset : offset + size]


def save(obj: Any, folder: Path) -> MappedObject:
    """Write an object into a new folder.

    Raises:
        OSError: there is no room for it.
        Exception: the object cannot be pickled; whatever it raises itself.
    """
    folder.mkdir()
    with open(folder / _PICKLE, "wb") as file, open(folder / _BUFFERS, "wb") as buffers:
        beside = _Beside(buffers)
        pickler = _Pickler(file, folder, beside)
        pickler.dump(obj)
        process_bytes = file.tell()
        mapped = buffers.tell() + pickler.index_bytes
    return MappedObject(str(folder), tuple(beside.places), mapped, process_bytes)


class _Beside:
    """Writes the large buffers of an object one behind another; says of each whether it stays in the pickle."""

    def __init__(self, file: BufferedWriter) -> None:
        self._file = file
        self.places: list[tuple[int, int]] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            data = buffer.raw()
        except BufferError:  # not in one piece
            return True
        if data.nbytes < SMALL_BYTES:
            return True
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        self.places.append((self._file.tell(), data.nbytes))
        self._file.write(data)
        return False


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what cloudpickle can, and indexes of Faiss by files of their own."""

    def __init__(self, file: Any, folder: Path, beside: _Beside) -> None:
        super().__init__(file, protocol=5, buffer_callback=beside)
        self._folder = folder
        self.index_bytes = 0
        self._indexes = 0

    def reducer_override(self, obj: Any) -> Any:
        faiss = sys.modules.get("faiss")
        if faiss is None or not isinstance(obj, faiss.Index):
            return super().reducer_override(obj)
        from headrace.handlers.faiss import map_index, write_index

        path = str(self._folder / f"{self._indexes}.faiss")
        self._indexes += 1
        self.index_bytes += write_index(obj, path)
        return map_index, (path,)
