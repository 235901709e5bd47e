"""One file of text being written, packed on the way where that is asked for."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import SinkError, suggestion
from headrace.sinks import folder
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2"}
"""By the name of a compression; readers know it by its suffix."""


class TextPart:
    """A part that begins with `head`, and to which `encode(batch, file)` writes rows."""

    def __init__(
        self,
        name: str,
        *,
        staging: str,
        output: str,
        compression: str | None,
        encode: Callable[[pa.RecordBatch, Any], None],
        head: bytes = b"",
    ) -> None:
        self._name, self._output, self._encode = name, output, encode
        self._path = folder.hidden_path(staging, name)
        try:
            self._file = packed(open(self._path, "wb"), compression)  # noqa: SIM115 - closed by prepare or discard
            self._file.write(head)
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        try:
            self._encode(batch, self._file)
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def copy(self, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def prepare(self) -> str:
        try:
            self._file.close()
        except OSError as error:
            raise cannot_write(self._where, error) from error
        return folder.seal(self._path, folder=self._output, name=self._name).text()

    def discard(self) -> None:
        with suppress(OSError):  # a full disk also refuses the rest of the buffer; the file goes away anyhow
            self._file.close()
        folder.remove_quietly(self._path)

    @property
    def _where(self) -> str:
        return os.path.join(self._output, self._name)


def suffix_of(compression: str | None, *, sink: str) -> str:
    """Return what a compression adds to the names of files.

    >>> suffix_of("gzip", sink="write_csv"), suffix_of(None, sink="write_csv")
    ('.gz', '')

    Raises:
        SinkError: there is no such compression.
    """
    if compression in (None, "none"):
        return ""
    if compression not in SUFFIXES:
        raise SinkError(
            f"{sink}: there is no compression {compression!r};{suggestion(str(compression), SUFFIXES)} "
            f"use {', '.join(map(repr, SUFFIXES))} or 'none'"
        )
    return SUFFIXES[compression]


def packed(file: IO[bytes], compression: str | None) -> Any:
    """Return a file that packs what is written to it into another, and closes that with itself."""
    return file if compression in (None, "none") else pa.CompressedOutputStream(file, compression)


def unpacked(path: str, compression: str | None) -> BufferedReader:
    """Open a packed file for reading."""
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    return file if compression in (None, "none") else io.BufferedReader(pa.CompressedInputStream(file, compression))


def encoded_bytes(encode: Callable[[Any], object], compression: str | None) -> int:
    """Return how many bytes `encode(file)` makes of a file."""
    buffer = _Kept()
    with packed(buffer, compression) as file:
        encode(file)
    return buffer.size


class _Kept(io.BytesIO):
    """A file in memory that knows its size when it is closed."""

    size = 0

    def close(self) -> None:
        if not self.closed:
            self.size = len(self.getbuffer())
        super().close()
