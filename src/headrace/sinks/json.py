"""JSON Lines: one object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.masking import masked
from headrace.records.giants import GIANT_BYTES
from headrace.sinks import folder
from headrace.sinks.columns import refuse_duplicates, refuse_untold
from headrace.sinks.json_text import joined, json_texts
from headrace.sinks.misfits import text_misfits
from headrace.sinks.rows import LineRows
from headrace.sinks.text_part import TextPart, encoded_bytes, suffix_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SLICE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class JsonSink:
    """Writes `part-00000.jsonl`, … into a folder (a path, or a URL such as s3://bucket/out).

    Every row is one object with all columns of its part. How values are written says `headrace.sinks.json_text`.
    `compression` is "gzip", "zstd" or "bz2", and tells in the files' names: `part-00000.jsonl.gz`.

    >>> JsonSink("out/").name
    'write_json(out/)'
    """

    path: str
    compression: str | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """For URLs, as fsspec takes them; they stay out of plans and messages."""

    def __post_init__(self) -> None:
        suffix_of(self.compression, sink=self.name)

    @property
    def name(self) -> str:
        return f"write_json({masked(self.path)})"

    @property
    def folder(self) -> str:
        return self.path

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkError for names that appear twice, and for types that JSON has nothing for."""
        refuse_duplicates(schema, sink=self.name)
        refuse_untold(schema, lambda batch: json_texts(batch.column(0)), sink=self.name)

    def misfits(self, batch: pa.RecordBatch) -> Mapping[int, str]:
        return text_misfits(batch)

    def open_part(self, number: int, schema: pa.Schema, staging: str) -> TextPart:
        return TextPart(
            folder.part_name(number, "jsonl" + suffix_of(self.compression, sink=self.name)),
            staging=staging,
            output=self.path,
            compression=self.compression,
            encode=write_rows,
        )

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        return encoded_bytes(lambda file: write_rows(batch, file), self.compression)

    def open_rows(self, path: str) -> LineRows:
        file = unpacked(path, self.compression)
        return LineRows(file, file)

    def publish(self, receipt: str) -> None:
        folder.publish(receipt, folder=self.path, storage_options=self.storage_options)

    def holds_late_columns(self) -> bool:
        return True

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None:
        """Do nothing: parts may differ in columns."""


def write_rows(batch: pa.RecordBatch, file: Any) -> None:
    """Write rows, none of them a misfit, to a file."""
    if batch.nbytes > GIANT_BYTES:
        for text in texts_of_giants(batch):
            file.write(text)
        return
    for start in range(0, batch.num_rows, SLICE_ROWS):
        file.write(lines(batch.slice(start, SLICE_ROWS)))


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
    for i, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        pieces += [("{" if i == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": ", json_texts(column)]
    return _data_of(joined(*pieces, "}\n", null="null"))


def texts_of_giants(batch: pa.RecordBatch) -> Iterator[pa.Buffer | bytes]:
    r"""Yield the same cell by cell, so that no more than one is in memory as text.

    >>> b"".join(map(bytes, texts_of_giants(pa.record_batch({"id": [1, 2], "x": ["a", None]}))))
    b'{"id": 1, "x": "a"}\n{"id": 2, "x": null}\n'
    """
    names = [json.dumps(name, ensure_ascii=False).encode() for name in batch.schema.names]
    for row in range(batch.num_rows):
        for i, (name, column) in enumerate(zip(names, batch.slice(row, 1).columns, strict=True)):
            yield (b"{" if i == 0 else b", ") + name + b": "
            text = json_texts(column)
            yield b"null" if text.null_count else _data_of(text)
        yield b"}\n" if names else b"{}\n"


def _data_of(texts: pa.Array) -> pa.Buffer:
    """Return texts one behind the other, as they lie in the array: a file's bytes without another copy."""
    offsets = pa.Array.from_buffers(pa.int64(), len(texts) + 1, [None, texts.buffers()[1]], offset=texts.offset)
    first, last = offsets[0].as_py(), offsets[len(texts)].as_py()
    return texts.buffers()[2].slice(first, last - first)
