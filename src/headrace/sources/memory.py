"""Rows that are already in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.records.block import Block, Origin, Unit, dense_block
from headrace.records.columns import empty_columns
from headrace.sources.agreement import select_columns
from headrace.sources.source import Split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPLIT_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class MemorySource:
    """A table as a source; made by `headrace.from_items`, `from_arrow` and `from_pandas`."""

    table: pa.Table
    name: str = "from_items"
    rows: int = -1
    """Number of rows, where the table has no columns to tell."""
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    @property
    def num_rows(self) -> int:
        """Rows held."""
        return int(self.table.num_rows) if self.rows < 0 else self.rows

    def splits(self) -> Sequence[Split]:
        """List the splits: runs of rows of about 16 MB."""
        if "splits" not in self._cache:
            total = self.num_rows
            step = _rows_in(SPLIT_BYTES, self.table.nbytes, total)
            self._cache["splits"] = [
                Split(
                    number=number,
                    label=f"{self.name} rows {low:,} to {min(low + step, total):,}",
                    size_bytes=self.table.nbytes * (min(low + step, total) - low) // total,
                    detail=(low, min(low + step, total)),
                    rows=min(low + step, total) - low,
                )
                for number, low in enumerate(range(0, total, step))
            ]
        found: Sequence[Split] = self._cache["splits"]
        return found

    def schema(self) -> pa.Schema:
        """Return the table's columns."""
        return self.table.schema.remove_metadata()

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield slices of the table, without copying."""
        low, high = split.detail
        origin = Origin(self.name, -low)
        if columns is not None:
            columns = select_columns(self.schema(), columns, reader=self.name).names
        table = self.table if columns is None else self.table.select(columns)
        if not table.schema.names:
            empty = Block(batch=empty_columns(high - low), unit=Unit(0), start=(0,), end=(high - low,), origin=origin)
            yield empty
            return
        step = _rows_in(BLOCK_BYTES, self.table.nbytes, self.num_rows)
        first = 0
        for batch in table.slice(low, high - low).to_batches(max_chunksize=step):
            if batch.num_rows == 0:
                continue
            if first + batch.num_rows > start:
                clean = batch.replace_schema_metadata(None)
                yield dense_block(clean, split=0, first=first, origin=origin)
            first += batch.num_rows

    def fingerprint(self, split: Split) -> str:
        """Return the digest of the rows."""
        digest = hashlib.sha256()
        low, high = split.detail
        if not self.table.schema.names:
            return hashlib.sha256(f"{high - low} rows without columns".encode()).hexdigest()
        sink = pa.PythonFile(_Digesting(digest), mode="w")
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table.slice(low, high - low))
        return digest.hexdigest()

    def version(self, split: Split) -> str:
        """Return the fingerprint: memory has no times of modification."""
        return self.fingerprint(split)


class _Digesting:
    """A file that keeps nothing but the digest."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self._size = 0

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _rows_in(target_bytes: int, total_bytes: int, rows: int) -> int:
    row_bytes = max(1, total_bytes // max(1, rows))
    return max(1, min(target_bytes // row_bytes, 4_000_000))
