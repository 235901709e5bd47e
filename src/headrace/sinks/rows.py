"""Rows of finished parts, as they stand in the file: for sinks that can put parts together anew."""

from __future__ import annotations

from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace.sinks.sink import PartWriter, Sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

LINES = 10_000
"""Lines that are moved at a time."""


class PartRows(Protocol):
    """The rows of one part, from the first to the last."""

    def take(self, rows: int) -> Iterator[Any]:
        """Yield the next rows in pieces that a `CopyingPart` of the same sink takes.

        Raises:
            EOFError: there are not so many.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class CopyingPart(PartWriter, Protocol):
    """A part that takes rows of other parts as they are."""

    def copy(self, piece: Any) -> None:
        """Append rows."""
        ...


@runtime_checkable
class MergingSink(Sink, Protocol):
    """A sink whose parts can be put together anew."""

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> CopyingPart:
        """As a sink's, for a part that takes rows as they are too."""
        ...

    def open_rows(self, path: str) -> PartRows:
        """Open a finished part."""
        ...


class LineRows:
    """Rows that are lines, or records of several lines, one after another in a file."""

    def __init__(self, file: IO[bytes], records: Iterator[bytes]) -> None:
        self._file, self._records = file, records

    def take(self, rows: int) -> Iterator[bytes]:
        """Yield the next rows, many at a time."""
        while rows:
            lines = list(islice(self._records, min(rows, LINES)))
            if not lines:
                raise EOFError
            rows -= len(lines)
            yield b"".join(lines)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class BatchRows:
    """Rows that come in record batches."""

    def __init__(self, file: Any, batches: Iterator[pa.RecordBatch]) -> None:
        self._file, self._batches = file, batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, a batch at a time."""
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise EOFError
            taken = batch.slice(0, rows)
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            rows -= taken.num_rows
            yield taken

    def close(self) -> None:
        """Close the file."""
        self._file.close()
