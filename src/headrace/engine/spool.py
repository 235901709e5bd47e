"""Rows in a file that is mapped: a table of any size, of which only what is looked at is in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.commit.disk_budget import DiskBudget
from headrace.records.types import conform, unify_schemas

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A table in an Arrow IPC stream; every process that loads it shares the same pages of memory."""

    path: str

    @property
    def key(self) -> str:
        """What tells it from all others of this machine."""
        return self.path

    def load(self) -> pa.Table:
        """Map the file."""
        return pa.ipc.open_stream(pa.memory_map(self.path)).read_all()


class Spool:
    """Writes batches one behind another, as they come: in as many files as their schema changes, in one at the end."""

    def __init__(self, folder: Path, disk: DiskBudget | None = None) -> None:
        self._folder = folder
        self._disk = disk or DiskBudget()
        self._taken = 0
        self._paths: list[str] = []
        self._schemas: list[pa.Schema] = []
        self._writer: pa.RecordBatchWriter | None = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch; one without rows tells its columns.

        Raises:
            SinkError: the disk budget is used up.
        """
        if not batch.schema.names:
            return
        batch = batch.replace_schema_metadata(None)
        if not self._schemas or not self._schemas[-1].equals(batch.schema):
            self._end_file()
            self._writer = self._begin_file(batch.schema)
        assert self._writer is not None
        if batch.num_rows:
            self._disk.take(batch.nbytes, str(self._folder))
            self._taken += batch.nbytes
            self._writer.write_batch(batch)
            self.rows += batch.num_rows

    def finish(self, *, empty: pa.Schema | None = None) -> MappedTable:
        """Return the table; `empty` has its columns where no batch has told any.

        Raises:
            TypeQuarrelError: batches have no common schema.
        """
        self._end_file()
        if not self._paths:
            self._begin_file(empty or pa.schema([])).close()
        if len(self._paths) > 1:
            self._join()
        return MappedTable(self._paths[0])

    def discard(self) -> None:
        """Remove the files; who has mapped them keeps them."""
        self._end_file()
        self._disk.give_back(self._taken)
        for name in self._paths:
            (self._folder / name).unlink(missing_ok=True)

    def _join(self) -> None:
        before = list(self._paths)
        writer = self._begin_file(unify_schemas(self._schemas))
        whole = self._schemas[-1]
        for path in before:
            for batch in MappedTable(path).load().to_batches():
                writer.write_batch(conform(batch, whole))
            (self._folder / path).unlink()
        writer.close()
        self._paths = self._paths[-1:]

    def _begin_file(self, schema: pa.Schema) -> pa.RecordBatchWriter:
        path = str(self._folder / f"rows-{len(self._paths)}.arrows")
        self._paths.append(path)
        self._schemas.append(schema)
        return pa.ipc.new_stream(path, schema)

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
