"""A stream of bytes in another encoding, read as UTF-8."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from headrace.errors import SourceError

if TYPE_CHECKING:
    from headrace.sources.storage import ByteStream


class Transcoded:
    """A stream in another encoding, read as UTF-8."""

    def __init__(self, stream: ByteStream, path: str, encoding: str) -> None:
        self._stream, self._path, self._encoding = stream, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def __enter__(self) -> Transcoded:
        self._stream.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        """Return about so many bytes, none at the end.

        Raises:
            SourceError: the stream is not in that encoding.
        """
        while True:
            data = self._stream.read(size)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeError as error:
                raise SourceError(
                    f"{self._path} is not {self._encoding}: {error}; pass the encoding that it has as encoding="
                ) from error
            if text or not data:
                return text.encode()

    def view(self, size: int) -> memoryview:
        """Return what `read` does, as a view."""
        return memoryview(self.read(size))
