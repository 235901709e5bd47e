"""CSV files.

The rules: null is an empty cell and text always stands in quotes, so that `""` (empty text) and nothing (null) differ;
in a file of one column null is `""`, since an empty line is no row to most readers. Numbers, booleans, dates and times
are written plainly (NaN as nan), times with a zone in UTC, durations in seconds, bytes in base64; lists, structs, maps
and tensors are JSON text.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SinkError
from headrace.masking import masked
from headrace.records.types import is_bytes, is_text
from headrace.sinks import folder
from headrace.sinks.columns import refuse_duplicates, refuse_untold
from headrace.sinks.json_text import base64_texts, json_texts, plain_array, seconds
from headrace.sinks.misfits import text_misfits
from headrace.sinks.rows import LineRows
from headrace.sinks.text_part import TextPart, encoded_bytes, packed, suffix_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader


@dataclass(frozen=True, slots=True)
class CsvSink:
    """Writes `part-00000.csv`, …, each with a header, into a folder (a path, or a URL such as s3://bucket/out).

    `compression` is "gzip", "zstd" or "bz2", and tells in the files' names: `part-00000.csv.gz`.

    >>> CsvSink("out/").name
    'write_csv(out/)'
    """

    path: str
    compression: str | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; they stay out of plans and messages."""

    def __post_init__(self) -> None:
        suffix_of(self.compression, sink=self.name)

    @property
    def name(self) -> str:
        return f"write_csv({masked(self.path)})"

    @property
    def folder(self) -> str:
        return self.path

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError for names that appear twice, and for types that a cell of text cannot tell."""
        refuse_duplicates(schema, sink=self.name)
        refuse_untold(schema, as_cells, sink=self.name)

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        return text_misfits(batch)

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> TextPart:
        return TextPart(
            folder.part_name(number, "csv" + suffix_of(self.compression, sink=self.name)),
            staging=staging,
            output=self.path,
            compression=self.compression,
            encode=write_rows,
            head=header(schema),
        )

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        def encode(file: Any) -> None:
            file.write(header(batch.schema))
            write_rows(batch, file)

        return encoded_bytes(encode, self.compression)

    def open_rows(self, path: str) -> LineRows:
        file = unpacked(path, self.compression)
        header_cells(file)
        return LineRows(file, records(file))

    def publish(self, receipt: str) -> None:
        folder.publish(receipt, folder=self.path, storage_options=self.storage_options)

    def holds_late_columns(self) -> bool:
        return False

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        def widen(old: str, new: str) -> None:
            with unpacked(old, self.compression) as source, packed(open(new, "wb"), self.compression) as target:
                known = len(header_cells(source))
                target.write(header(schema))
                ending = b"," * (len(schema) - known) + b"\n"
                for record in records(source):
                    target.write(record.removesuffix(b"\n") + ending)

        folder.replace(receipt, folder=self.path, staging=staging, rewrite=widen, storage_options=self.storage_options)


def write_rows(batch: pa.RecordBatch, file: Any) -> None:
    """Write rows, none of them a misfit, to a file.

    Raises:
        SinkError: the rows have no columns.
    """
    import pyarrow.csv as pacsv

    if batch.num_columns == 0:
        raise SinkError("write_csv: the rows have no columns, which CSV cannot hold")
    pacsv.write_csv(as_cells(batch), file, pacsv.WriteOptions(include_header=False))


def as_cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with every column in a type that Arrow's CSV writer writes by this module's rules."""
    columns = [_cells(column) for column in batch.columns]
    if len(columns) == 1 and columns[0].null_count:
        columns = [pc.fill_null(columns[0].cast(pa.large_string()), "")]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def header(schema: pa.Schema) -> bytes:
    r"""Return the first line.

    >>> header(pa.schema({"id": pa.int64(), "text": pa.string()}))
    b'"id","text"\n'
    """
    return ",".join('"' + name.replace('"', '""') + '"' for name in schema.names).encode() + b"\n"


def records(file: BufferedReader) -> Iterator[bytes]:
    """Yield the records of a file that this module wrote, line breaks in cells and at their ends included."""
    open_record = b""
    for line in file:
        open_record += line
        if open_record.count(b'"') % 2 == 0:
            yield open_record
            open_record = b""


def header_cells(file: BufferedReader) -> list[str]:
    """Read the header record and return its cells."""
    record = file.readline()
    while record.count(b'"') % 2:
        record += file.readline()
    return next(csv.reader([record.decode()]), [])


def _cells(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(pa.string())
    if (plain := plain_array(array)) is not None:
        return _cells(plain)
    if is_text(type_):
        return array.cast(pa.large_string()) if pa.types.is_string_view(type_) else array
    if is_bytes(type_) or pa.types.is_fixed_size_binary(type_):
        return base64_texts(array)
    if pa.types.is_timestamp(type_) and type_.tz:
        return array.cast(pa.timestamp(type_.unit, "UTC"))
    if pa.types.is_duration(type_):
        return seconds(array)
    if (pa.types.is_primitive(type_) and not pa.types.is_interval(type_)) or pa.types.is_decimal(type_):
        return array
    return json_texts(array)
