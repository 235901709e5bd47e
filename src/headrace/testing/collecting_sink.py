"""A sink that keeps rows in memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.records.columns import to_rows
from headrace.records.types import conform, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Sequence


class CollectingSink:
    """Takes rows as any other sink does, part by part, and gives them back.

    >>> import headrace as hr
    >>> sink = CollectingSink()
    >>> result = hr.from_items([{"id": 1}, {"id": 2}]).write(sink).run()
    >>> sink.rows()
    [{'id': 1}, {'id': 2}]
    """

    def __init__(self, name: str = "collect", *, holds_late_columns: bool = False) -> None:
        """Make an empty sink; `holds_late_columns` says whether parts may differ in columns, as in JSON."""
        self._name = name
        self._holds_late_columns = holds_late_columns
        self._lock = threading.Lock()
        self._prepared: dict[str, pa.Table] = {}
        self._published: dict[int, pa.Table] = {}

    @property
    def name(self) -> str:
        """What plans and messages call it."""
        return self._name

    @property
    def folder(self) -> None:
        """It has none."""

    @property
    def parts(self) -> list[pa.Table]:
        """The published parts, in order."""
        with self._lock:
            return [self._published[number] for number in sorted(self._published)]

    def to_arrow(self) -> pa.Table:
        """Return all published rows as one table."""
        parts = self.parts
        schema = unify_schemas([part.schema for part in parts])
        batches = [conform(batch, schema) for part in parts for batch in part.to_batches()]
        return pa.Table.from_batches(batches, schema=schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return all published rows as dicts, in order."""
        return [row for part in self.parts for batch in part.to_batches() for row in to_rows(batch)]

    # What the engine calls.

    def check(self, schema: pa.Schema) -> None:
        """Take columns of any type."""

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> CollectingPart:
        """Begin a part."""
        return CollectingPart(self, number, schema)

    def publish(self, receipt: str) -> None:
        """Show a prepared part; a second time changes nothing."""
        with self._lock:
            if receipt in self._prepared:
                self._published[int(receipt)] = self._prepared.pop(receipt)

    def holds_late_columns(self) -> bool:
        """Say whether parts may differ in columns."""
        return self._holds_late_columns

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        """Give a published part the columns of a wider schema."""
        with self._lock:
            old = self._published[int(receipt)]
            batches = [conform(batch, schema) for batch in old.to_batches()]
            self._published[int(receipt)] = pa.Table.from_batches(batches, schema=schema)

    def _prepare(self, number: int, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> str:
        with self._lock:
            self._prepared[str(number)] = pa.Table.from_batches(batches, schema=schema)
        return str(number)


class CollectingPart:
    """One part on its way into a `CollectingSink`."""

    def __init__(self, sink: CollectingSink, number: int, schema: pa.Schema) -> None:
        self._sink, self._number, self._schema = sink, number, schema
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        assert batch.schema.equals(self._schema), (batch.schema, self._schema)
        self._batches.append(batch)

    def prepare(self) -> str:
        """Keep the part, not visible yet."""
        return self._sink._prepare(self._number, self._batches, self._schema)

    def discard(self) -> None:
        """Forget the part."""
        self._batches.clear()
