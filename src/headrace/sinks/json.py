"""JSON Lines: one object a line."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.records.giants import GIANT_BYTES
from headrace.sinks import folder
from headrace.sinks.columns import refuse_duplicates, storable
from headrace.sinks.disk import cannot_write
from headrace.sinks.json_text import joined, json_texts
from headrace.sinks.misfits import refuse, text_misfits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedWriter

SLICE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class JsonSink:
    """Writes `part-00000.jsonl`, … into a folder (a path, or a URL such as s3://bucket/out).

    Every row is one object with all columns of its part. How values are written says `headrace.sinks.json_text`.

    >>> JsonSink("out/").name
    'write_json(out/)'
    """

    path: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; they stay out of plans and messages."""

    @property
    def name(self) -> str:
        return f"write_json({self.path})"

    @property
    def folder(self) -> str:
        return self.path

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError for names that appear twice; objects that are no arrays are refused when they come."""
        refuse_duplicates(schema, sink=self.name)

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        return text_misfits(batch)

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> JsonPart:
        return JsonPart(folder.part_name(number, "jsonl"), staging, self.path)

    def publish(self, receipt: str) -> None:
        folder.publish(receipt, folder=self.path, storage_options=self.storage_options)

    def holds_late_columns(self) -> bool:
        return True

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        """Do nothing: parts may differ in columns."""


class JsonPart:
    """One JSON Lines file being written."""

    def __init__(self, name: str, staging: str, output: str) -> None:
        self._name, self._output = name, output
        self._path = folder.hidden_path(staging, name)
        self._file: BufferedWriter | None = None
        try:
            self._file = open(self._path, "wb")  # noqa: SIM115 - closed by prepare or discard
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        assert self._file is not None, "part is closed"
        refuse(text_misfits(batch), sink=f"write_json({self._output})")
        try:
            if batch.nbytes > GIANT_BYTES:
                for text in texts_of_giants(batch):
                    self._file.write(text)
                return
            for start in range(0, batch.num_rows, SLICE_ROWS):
                self._file.write(lines(batch.slice(start, SLICE_ROWS)))
        except OSError as error:
            raise cannot_write(self._where, error) from error

    def prepare(self) -> str:
        assert self._file is not None, "part is closed"
        try:
            self._file.close()
        except OSError as error:
            raise cannot_write(self._where, error) from error
        return folder.seal(self._path, folder=self._output, name=self._name).text()

    def discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk also refuses the rest of the buffer; the file goes away anyhow
                self._file.close()
        folder.remove_quietly(self._path)

    @property
    def _where(self) -> str:
        return os.path.join(self._output, self._name)


def lines(batch: pa.RecordBatch) -> pa.Buffer | bytes:
    r"""Return the rows as JSON Lines.

    >>> bytes(lines(pa.record_batch({"id": [1, 2], "x": ["a", None]})))
    b'{"id": 1, "x": "a"}\n{"id": 2, "x": null}\n'
    """
    if batch.num_rows == 0:
        return b""
    if batch.num_columns == 0:
        return b"{}\n" * batch.num_rows
    pieces: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(batch.schema.names, storable(batch).columns, strict=True)):
        pieces += [("{" if i == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": ", json_texts(column)]
    return _data_of(joined(*pieces, "}\n", null="null"))


def texts_of_giants(batch: pa.RecordBatch) -> Iterator[pa.Buffer | bytes]:
    r"""Yield the same cell by cell, so that no more than one is in memory as text.

    >>> b"".join(map(bytes, texts_of_giants(pa.record_batch({"id": [1, 2], "x": ["a", None]}))))
    b'{"id": 1, "x": "a"}\n{"id": 2, "x": null}\n'
    """
    names = [json.dumps(name, ensure_ascii=False).encode() for name in batch.schema.names]
    for row in range(batch.num_rows):
        for i, (name, column) in enumerate(zip(names, storable(batch.slice(row, 1)).columns, strict=True)):
            yield (b"{" if i == 0 else b", ") + name + b": "
            text = json_texts(column)
            yield b"null" if text.null_count else _data_of(text)
        yield b"}\n" if names else b"{}\n"


def _data_of(texts: pa.Array) -> pa.Buffer:
    """Return texts one behind the other, as they lie in the array: a file's bytes without another copy."""
    offsets = pa.Array.from_buffers(pa.int64(), len(texts) + 1, [None, texts.buffers()[1]], offset=texts.offset)
    first, last = offsets[0].as_py(), offsets[len(texts)].as_py()
    return texts.buffers()[2].slice(first, last - first)
