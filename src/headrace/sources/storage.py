"""Bytes of local and remote files: opened, cut to a range, decompressed. fsspec is imported for URLs only."""

from __future__ import annotations

import io
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import MissingDependencyError, NoInputError, SourceError
from headrace.masking import masked
from headrace.sources.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

CODECS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}

PACKAGES = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
}
"""By protocol: the package that fsspec needs, and our extra that brings it."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of the input as it was listed."""

    path: str
    size_bytes: int
    """-1 where the store does not say."""
    stamp: str
    """Modification time in nanoseconds, or the store's etag or version; "" if there is none."""
    group: int | None = None
    """Files of one group share splits with each other only; set when earlier runs had grouped them so."""


def is_url(path: str) -> bool:
    """Say whether the path names a remote store.

    >>> is_url("s3://bucket/a.csv"), is_url("data/a.csv")
    (True, False)
    """
    return "://" in path


def codec_of(path: str) -> str | None:
    """Return the codec that the file's suffix stands for.

    >>> codec_of("a.csv.gz"), codec_of("a.csv")
    ('gzip', None)
    """
    return CODECS.get(os.path.splitext(path)[1].lower())


def filesystem(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it.

    Raises:
        MissingDependencyError: the package for this kind of URL is not installed.
        SourceError: the URL's protocol is unknown or refuses the options.
    """
    protocol = url.split("://", 1)[0]
    package, extra = PACKAGES.get(protocol, (f"fsspec[{protocol}]", "remote"))
    try:
        from fsspec.core import url_to_fs

        fs, inner = url_to_fs(url, **dict(storage_options or {}))
    except ImportError as error:
        raise MissingDependencyError(package, extra=extra, needed_by=f"{protocol}://") from error
    except (ValueError, TypeError, OSError) as error:
        raise SourceError(f"cannot open {url}: {error}; check the URL and storage_options=") from error
    return fs, inner


_whole = Scratch()


def opened(fs: Any, inner: str) -> Any:
    """Open a file of an fsspec file system for whoever reads it alone."""
    file = fs.open(inner, "rb")
    # All who open a file of memory:// get one object, with one position.
    return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file


class ByteStream:
    """The bytes of a file, or of a range of it, decompressed by the file's suffix.

    Use it as a context manager; `read` raises SourceError, naming the file, for whatever goes wrong.
    """

    def __init__(
        self,
        path: str,
        *,
        start: int = 0,
        end: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        raw: bool = False,
    ) -> None:
        self._path, self._start, self._end, self._options = path, start, end, storage_options
        self._codec = None if raw else codec_of(path)
        self._left = None if end is None or self._codec else end - start
        self._file: Any = None
        self._stream: Any = None

    def __enter__(self) -> ByteStream:
        try:
            self._file = self._open()
            if self._start:
                self._file.seek(self._start)
            self._stream = pa.CompressedInputStream(self._file, self._codec) if self._codec else self._file
        except Exception as error:
            self.close()
            raise unreadable(self._path, error) from error
        return self

    def _open(self) -> Any:
        if is_url(self._path):
            fs, inner = filesystem(self._path, self._options)
            return pa.PythonFile(opened(fs, inner), mode="r")
        info = os.stat(self._path)
        if not stat.S_ISREG(info.st_mode):
            return pa.PythonFile(open(self._path, "rb"), mode="r")
        if self._left is None and not self._codec:
            self._left = max(0, info.st_size - self._start)  # so that buffers are no bigger than need be
        return pa.OSFile(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        for stream in (self._stream, self._file):
            if stream is not None:
                stream.close()
        self._stream = self._file = None

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end, b"" after it."""
        if (size := self._within(size)) == 0:
            return b""
        try:
            data: bytes = self._stream.read(size)
        except Exception as error:
            raise unreadable(self._path, error) from error
        if self._left is not None:
            self._left -= len(data)
        return data

    def view(self, size: int) -> memoryview:
        """Return the same as `read` in memory of this thread's, which the next view in this thread overwrites."""
        if (size := self._within(size)) == 0:
            return memoryview(b"")
        room = _whole.room(size).data
        try:
            count = self._stream.readinto(room)
        except Exception as error:
            raise unreadable(self._path, error) from error
        if self._left is not None:
            self._left -= count
        return room[:count]

    def _within(self, size: int) -> int:
        return size if self._left is None else max(0, min(size, self._left))

    def read_all(self) -> bytes:
        """Return everything that is left."""
        return b"".join(iter(lambda: self.read(1 << 24), b""))


def byte_ranges(
    path: str, start: int, end: int, storage_options: Mapping[str, Any] | None, chunk_bytes: int = 1 << 22
) -> Iterator[memoryview]:
    """Yield the raw bytes `[start, end)` of a file, never decompressed, in chunks; each is gone with the next."""
    with ByteStream(path, start=start, end=end, storage_options=storage_options, raw=True) as stream:
        while data := stream.view(chunk_bytes):
            yield data


def unreadable(path: str, error: BaseException) -> SourceError:
    """Return the SourceError that names the file and what to do about it."""
    _mask(error)
    if isinstance(error, SourceError):
        return error
    if isinstance(error, MissingDependencyError):
        raise error
    if isinstance(error, FileNotFoundError):
        return NoInputError(f"{path} does not exist (any more); check the path")
    if isinstance(error, PermissionError):
        return SourceError(
            f"cannot read {path}: permission denied; check the file's owner and mode, or your credentials"
        )
    if type(error).__name__ == "FileExpired":  # told by the client of S3, which asks for the version that it opened
        return changed(path)
    if is_url(path) and not isinstance(error, pa.ArrowInvalid):
        failed = SourceError(
            f"cannot read {path}: {str(error).rstrip('.') or type(error).__name__}; check the URL, the network, your "
            "credentials and storage_options="
        )
        failed.may_pass = _of_the_network(error)
        return failed
    if codec_of(path):
        return SourceError(
            f"cannot read {path}: {error}; it may be truncated or not {codec_of(path)} at all: fetch or pack it again"
        )
    return SourceError(f"cannot read {path}: {str(error).rstrip('.')}; it may be damaged: check it, or fetch it again")


def changed(path: str) -> SourceError:
    """Return the SourceError for a file that is another now."""
    return SourceError(
        f"{path} changed while it was being read; let nobody write to the input while a run reads it, and run the same"
        " command again"
    )


def _of_the_network(error: BaseException) -> bool:
    """Say whether an error of a client may be gone at the next attempt; their types are as many as the clients.

    >>> _of_the_network(ConnectionResetError()), _of_the_network(ValueError("no such option"))
    (True, False)
    """
    if isinstance(error, OSError):
        return not isinstance(error, (IsADirectoryError, NotADirectoryError))
    return re.search("Timeout|Connect|Payload|IncompleteRead|Streaming", type(error).__name__) is not None


def _mask(error: BaseException | None) -> None:
    """Mask the texts of an error and of its causes, which Python prints below ours."""
    while error is not None:
        error.args = tuple(masked(arg) if isinstance(arg, str) else arg for arg in error.args)
        if isinstance(error, OSError) and isinstance(error.filename, str):
            error.filename = masked(error.filename)
        error = error.__cause__ or error.__context__
