"""CSV files.

The rules: null is an empty cell and text always stands in quotes, so that `""` (empty text) and nothing (null) differ;
in a file of one column null is `""`, since an empty line is no row to most readers. Numbers, booleans, dates and times
are written plainly (NaN as nan), times with a zone in UTC, durations in seconds, bytes in base64; lists, structs, maps
and tensors are JSON text.
"""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SinkError
from headrace.records.tensors import ObjectType
from headrace.records.types import is_bytes, is_text
from headrace.sinks import folder
from headrace.sinks.columns import refuse_duplicates, storable
from headrace.sinks.disk import cannot_write
from headrace.sinks.json_text import base64_texts, json_texts, seconds
from headrace.sinks.misfits import refuse, text_misfits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedReader


@dataclass(frozen=True, slots=True)
class CsvSink:
    """Writes `part-00000.csv`, …, each with a header, into a folder (a path, or a URL such as s3://bucket/out).

    >>> CsvSink("out/").name
    'write_csv(out/)'
    """

    path: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; they stay out of plans and messages."""

    @property
    def name(self) -> str:
        return f"write_csv({self.path})"

    @property
    def folder(self) -> str:
        return self.path

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError for names that appear twice; objects that are no arrays are refused when they come."""
        refuse_duplicates(schema, sink=self.name)

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        return text_misfits(batch)

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> CsvPart:
        return CsvPart(folder.part_name(number, "csv"), schema, staging, self.path)

    def publish(self, receipt: str) -> None:
        folder.publish(receipt, folder=self.path, storage_options=self.storage_options)

    def holds_late_columns(self) -> bool:
        return False

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        def widen(old: str, new: str) -> None:
            with open(old, "rb") as source, open(new, "wb") as target:
                known = len(header_cells(source))
                target.write(header(schema))
                ending = b"," * (len(schema) - known) + b"\n"
                for record in records(source):
                    target.write(record + ending)

        folder.replace(receipt, folder=self.path, staging=staging, rewrite=widen, storage_options=self.storage_options)


class CsvPart:
    """One CSV file being written."""

    def __init__(self, name: str, schema: pa.Schema, staging: str, output: str) -> None:
        self._name, self._output = name, output
        self._path = folder.hidden_path(staging, name)
        self._schema = schema
        try:
            self._file = open(self._path, "wb")  # noqa: SIM115 - closed by prepare or discard
            self._file.write(header(schema))
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if batch.num_columns == 0:
            raise SinkError(f"cannot write {self._where}: the rows have no columns, which CSV cannot hold")
        refuse(text_misfits(batch), sink=f"write_csv({self._output})")
        import pyarrow.csv as pacsv

        options = pacsv.WriteOptions(include_header=False)
        try:
            pacsv.write_csv(as_cells(batch), self._file, options)
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


def as_cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with every column in a type that Arrow's CSV writer writes by this module's rules."""
    columns = [_cells(column) for column in storable(batch).columns]
    if len(columns) == 1 and columns[0].null_count:
        columns = [pc.fill_null(columns[0].cast(pa.large_string()), "")]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def header(schema: pa.Schema) -> bytes:
    r"""Return the first line.

    >>> header(pa.schema({"id": pa.int64(), "text": pa.string()}))
    b'"id","text"\n'
    """
    return ",".join('"' + name.replace('"', '""') + '"' for name in schema.names).encode() + b"\n"


def records(file: BufferedReader) -> list[bytes]:
    """Return the records of a file that this module wrote, without their ends and with line breaks in cells kept."""
    found: list[bytes] = []
    open_record = b""
    for line in file:
        open_record += line
        if open_record.count(b'"') % 2 == 0:
            found.append(open_record.removesuffix(b"\n"))
            open_record = b""
    return found


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
    if pa.types.is_dictionary(type_):
        return _cells(array.dictionary_decode())
    if is_text(type_):
        return array.cast(pa.large_string()) if pa.types.is_string_view(type_) else array
    if is_bytes(type_) or pa.types.is_fixed_size_binary(type_):
        return base64_texts(array)
    if pa.types.is_timestamp(type_) and type_.tz:
        return array.cast(pa.timestamp(type_.unit, "UTC"))
    if pa.types.is_duration(type_):
        return seconds(array)
    if pa.types.is_nested(type_) or isinstance(type_, ObjectType):
        return json_texts(array)
    return array
