"""Parquet files."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import SinkError
from headrace.masking import masked
from headrace.records.giants import GIANT_BYTES
from headrace.records.plain import numbers_of
from headrace.records.types import types_within
from headrace.sinks import folder
from headrace.sinks.columns import (
    conformed,
    refuse_duplicates,
    refuse_objects,
    refuse_untold,
    storable,
    storable_schema,
)
from headrace.sinks.disk import cannot_write
from headrace.sinks.misfits import parquet_misfits
from headrace.sinks.rows import BatchRows

if TYPE_CHECKING:
    from collections.abc import Mapping

ROW_GROUP_BYTES = 4 * 2**20
ROW_GROUP_ROWS = 1_048_576
SAMPLE_ROWS = 10_000
WORTHWHILE_SHARE = 0.9
"""A giant that compression does not bring below this is written as it is: packing takes as much memory again."""
PROBES, PROBE_BYTES = 16, 2**16


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Writes `part-00000.parquet`, … into a folder (a path, or a URL such as s3://bucket/out).

    Tensors are written as nested lists. `compression` takes what pyarrow takes ("snappy", "zstd", "lz4", "none", …):
    zstd at level 1 saves a third of the space for half as much time again.

    >>> ParquetSink("out/").name
    'write_parquet(out/)'
    """

    path: str
    compression: str = "snappy"
    compression_level: int | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; they stay out of plans and messages."""

    @property
    def name(self) -> str:
        return f"write_parquet({masked(self.path)})"

    @property
    def folder(self) -> str:
        return self.path

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError for what Parquet cannot hold: Python objects, doubled names, structs without fields."""
        refuse_objects(schema, sink=self.name)
        refuse_duplicates(schema, sink=self.name)
        self.writer(pa.BufferOutputStream(), pa.schema([]), dictionary=False).close()  # are its options any?
        refuse_untold(storable_schema(schema), self._try, sink=self.name)

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        return parquet_misfits(batch)

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> ParquetPart:
        return ParquetPart(folder.part_name(number, "parquet"), schema, staging, self)

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        table = pa.Table.from_batches([storable(batch)])
        file = pa.BufferOutputStream()
        with self.writer(file, table.schema, dictionary=worth_a_dictionary(table)) as writer:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        return int(file.getvalue().size)

    def open_rows(self, path: str) -> BatchRows:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path)
        return BatchRows(file, file.iter_batches())

    def publish(self, receipt: str) -> None:
        folder.publish(receipt, folder=self.path, storage_options=self.storage_options)

    def holds_late_columns(self) -> bool:
        return False

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        def widen(old: str, new: str) -> None:
            import pyarrow.parquet as pq

            wide = storable_schema(schema)
            with pq.ParquetFile(old) as file, self.writer(new, wide, dictionary=True) as writer:
                for batch in file.iter_batches():
                    writer.write_batch(conformed(batch, wide, sink=self.name))

        folder.replace(receipt, folder=self.path, staging=staging, rewrite=widen, storage_options=self.storage_options)

    def writer(
        self,
        path: str | pa.NativeFile,
        schema: pa.Schema,
        *,
        dictionary: bool | list[str],
        giants: pa.Table | None = None,
    ) -> pa.parquet.ParquetWriter:
        """Open pyarrow's writer with this sink's options, as suits `giants` where the file begins with some."""
        import pyarrow.parquet as pq

        compression, level = self.compression, self.compression_level
        if level is None and compression == "zstd":
            level = 1
        options: dict[str, Any] = {}
        if giants is not None:
            # Of a giant value Arrow makes six copies for statistics, and one more for the older kind of page.
            options = {"write_statistics": False, "data_page_version": "2.0"}
            if not worth_packing(giants, compression):
                compression, level = "none", None
        try:
            return pq.ParquetWriter(
                path, schema, compression=compression, compression_level=level, use_dictionary=dictionary, **options
            )
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise SinkError(f"{self.name}: {error}") from error

    def _try(self, batch: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        fixed = next((t for t in types_within(batch.schema.field(0).type) if pa.types.is_fixed_size_list(t)), None)
        if fixed is not None:
            raise pa.ArrowNotImplementedError(f"{fixed} inside a map")
        with pq.ParquetWriter(pa.BufferOutputStream(), batch.schema) as writer:
            writer.write_batch(batch)


class ParquetPart:
    """One Parquet file being written; rows are gathered into row groups of about 4 MB of columns."""

    def __init__(self, name: str, schema: pa.Schema, staging: str, sink: ParquetSink) -> None:
        self._name, self._sink = name, sink
        self._schema = storable_schema(schema)
        self._path = folder.hidden_path(staging, name)
        self._writer: pa.parquet.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._nbytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows and not batch.num_columns:  # the writer would count them as none
            raise SinkError(f"{self._sink.name}: the rows have no columns, which Parquet cannot hold")
        batch = storable(batch)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._nbytes += batch.nbytes
        if self._nbytes >= ROW_GROUP_BYTES or self._rows >= ROW_GROUP_ROWS:
            self._flush()

    def copy(self, piece: pa.RecordBatch) -> None:
        from headrace.records.types import conform

        self.write(conform(piece, self._schema))

    def prepare(self) -> str:
        self._flush()
        try:
            assert self._writer is not None
            self._writer.close()
        except OSError as error:
            raise cannot_write(self._where, error) from error
        return folder.seal(self._path, folder=self._sink.path, name=self._name).text()

    def discard(self) -> None:
        if self._writer is not None:
            # A full disk also refuses the footer; the file goes away anyhow.
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
        folder.remove_quietly(self._path)

    def _flush(self) -> None:
        if not self._batches and self._writer is not None:
            return
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        try:
            if self._writer is None:
                giants = table if table.nbytes > GIANT_BYTES else None
                dictionary = worth_a_dictionary(table)
                self._writer = self._sink.writer(self._path, self._schema, dictionary=dictionary, giants=giants)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        except OSError as error:
            raise cannot_write(self._where, error) from error
        except pa.ArrowNotImplementedError as error:
            raise SinkError(f"{self._sink.name}: {error}; turn that column into another type in a map step") from error
        self._batches, self._rows, self._nbytes = [], 0, 0

    @property
    def _where(self) -> str:
        return os.path.join(self._sink.path, self._name)


def worth_a_dictionary(table: pa.Table) -> list[str]:
    """Return the columns whose values repeat. Building dictionaries of the others is half the time of writing a file.

    >>> worth_a_dictionary(pa.table({"id": range(100), "kind": ["a", "b"] * 50}))
    ['kind']
    """
    chosen = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        type_ = column.type
        if pa.types.is_dictionary(type_):
            chosen.append(name)
        elif not pa.types.is_nested(type_) and not pa.types.is_null(type_) and 0 < column.nbytes <= GIANT_BYTES:
            sample = column.chunk(0).slice(0, SAMPLE_ROWS)
            if len(sample) and _distinct(sample) < len(sample) / 2:
                chosen.append(name)
    return chosen


def worth_packing(table: pa.Table, compression: str) -> bool:
    """Say whether compression makes less of a table's largest buffer, told from pieces of it.

    >>> worth_packing(pa.table({"x": ["always the same " * 100_000]}), "snappy")
    True
    """
    if compression.lower() == "none":
        return False
    buffers = (b for column in table.columns for chunk in column.chunks for b in chunk.buffers() if b is not None)
    largest = max(buffers, key=lambda buffer: int(buffer.size))
    step = max(PROBE_BYTES, largest.size // PROBES)
    sample = b"".join(largest.slice(at, min(PROBE_BYTES, largest.size - at)) for at in range(0, largest.size, step))
    packed = pa.Codec(compression.lower()).compress(sample)
    return len(packed) < WORTHWHILE_SHARE * len(sample)


def _distinct(sample: pa.Array) -> int:
    numbers = numbers_of(sample)
    if numbers is not None:  # pyarrow.compute, and numpy.unique, import more than a small job takes to write its file
        bits = np.sort(numbers.view(f"u{numbers.itemsize}"))
        return int(np.count_nonzero(bits[1:] != bits[:-1])) + 1
    import pyarrow.compute as pc

    try:
        return int(pc.count_distinct(sample).as_py())
    except pa.ArrowNotImplementedError:  # views, and types by another's name
        return len(sample)
