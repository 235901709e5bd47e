"""The contract of a sink: parts that are written out of sight and published whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class PartWriter(Protocol):
    """One part being written. The engine calls `write` any number of times, then `prepare` or `discard`."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; every batch has the schema that the part was opened with."""
        ...

    def prepare(self) -> str:
        """Make the part durable but not yet visible; return a receipt (a short text) that `publish` understands.

        After the receipt is in the journal the part counts as committed.
        """
        ...

    def discard(self) -> None:
        """Throw the unfinished part away; safe to call at any time, also twice."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where rows go. Implement it (structurally) to write what Headrace does not.

    The engine keeps a journal of parts in `folder`, be it local or a URL, and publishes each part after its journal
    entry is durable: a crash between the two is mended at the next start by calling `publish` again. Where `folder` is
    a URL, that may be on another machine: what `prepare` makes durable must not lie on this one's disk (files that
    `headrace.sinks.folder.seal` has sealed are put into the store by the engine).
    """

    @property
    def name(self) -> str:
        """Short name for plans and messages, such as "write_parquet(out/)"."""
        ...

    @property
    def folder(self) -> str | None:
        """Where the output lives (path or URL); None where it is no folder, and nothing is gone on with."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError, naming column and remedy, if the format cannot hold such a column."""
        ...

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> PartWriter:
        """Begin part `number`; `staging` is a local folder for unfinished files, on the same disk if possible."""
        ...

    def publish(self, receipt: str) -> None:
        """Make a prepared part visible; idempotent, since it is repeated after a crash."""
        ...

    def holds_late_columns(self) -> bool:
        """Say whether parts may differ in columns; if not, earlier parts are rewritten when a column turns up."""
        ...

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        """Replace a published part atomically by the same rows under a wider schema."""
        ...


@runtime_checkable
class MeasuringSink(Sink, Protocol):
    """A sink that can tell the size of a file beforehand, so that the first part too has the size asked for."""

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        """Return how many bytes a part with these rows (or without any) takes."""
        ...


@runtime_checkable
class ChoosySink(Sink, Protocol):
    """A sink whose format cannot hold every value of the columns that it takes.

    Such rows fail alone, in the step that writes; a sink without this method takes every row, or ends the run.
    """

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        """Return the rows that the format cannot hold, each with why and what to do about it; {} when it holds all.

        Called with every batch, and only what fits is written; so it looks at types first, and at values where these
        leave doubt.
        """
        ...
