"""CSV files: Arrow's parser where every cell fits its column's type, a careful second look where one does not."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from headrace.errors import PlanError, SourceError
from headrace.records.block import Block, Origin
from headrace.sources import cells, pieces
from headrace.sources.agreement import (
    Agreement,
    Dtypes,
    Sample,
    TypeConflicts,
    agree,
    in_threads,
    sample_bytes,
    sampled,
    select_columns,
)
from headrace.sources.assembly import NOTHING_ADDED, Added, Misfit, block_of
from headrace.sources.extents import CUT_ABOVE_BYTES, SPLIT_BYTES, aligned, fingerprint_of, plan_splits, version_of
from headrace.sources.storage import ByteStream, codec_of, is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.sources.extents import Extent
    from headrace.sources.listing import FileSet
    from headrace.sources.source import Split
    from headrace.sources.storage import File

CSV_PATTERNS = tuple(f"*{kind}{packed}" for kind in (".csv", ".tsv") for packed in ("", ".gz", ".zst", ".bz2"))
MAX_CUT_FILES = 64
"""With more large files than this there is enough to do at once without looking for places to cut them."""

_HEADER_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class CsvSource:
    """Rows of CSV files; made by `headrace.read_csv`, which documents it."""

    fileset: FileSet
    columns: tuple[str, ...] | None = None
    dtypes: Dtypes = ()
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    has_header: bool = True
    column_names: tuple[str, ...] | None = None
    encoding: str = "utf8"
    type_conflicts: TypeConflicts = "error"
    added: Added = NOTHING_ADDED
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise PlanError(f"read_csv: delimiter={self.delimiter!r} must be one character, such as ',', ';' or '\\t'")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise PlanError(
                f"read_csv: there is no encoding {self.encoding!r}; try 'utf8', 'cp1252' or 'utf16'"
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {k: v for k, v in self._cache.items() if k == "agreement"}}

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"read_csv({self.fileset.label})"

    @property
    def passed_over(self) -> int:
        """Files in the folders that are no CSV files by name."""
        return self.fileset.passed_over

    def splits(self) -> Sequence[Split]:
        """List the splits: byte ranges of large files where that is proved safe, small files packed."""
        if "splits" not in self._cache:
            files = self.fileset.files()
            large = [f for f in files if f.size_bytes > CUT_ABOVE_BYTES and self._may_cut(f)]
            cuts: dict[str, list[int]] = {}
            if len(large) <= MAX_CUT_FILES:
                cuts = dict(zip((f.path for f in large), in_threads(self._cuts, large), strict=True))
            self._cache["splits"] = plan_splits(files, lambda f: cuts.get(f.path, ()))
        found: Sequence[Split] = self._cache["splits"]
        return found

    def schema(self) -> pa.Schema:
        """Return the columns and types that hold for the run, from the heads of the files."""
        return select_columns(self._agreement().schema, self.columns, reader=self.name)

    def version(self, split: Split) -> str:
        """Return what changes whenever the files may have changed."""
        return version_of(split)

    def fingerprint(self, split: Split) -> str:
        """Return the digest of the split's bytes."""
        options = self.fileset.storage_options
        return fingerprint_of(split, storage_options=options, lines=True, salt=self.added.salt(split))

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the rows of a split."""
        schema = self._agreement().schema
        wanted = self.columns if columns is None else columns
        first = 0
        for extent in split.detail.extents:
            reader = _FileReader(self, extent, schema, None if wanted is None else tuple(wanted))
            for block in reader.blocks(first):
                first = block.end[0]
                if first > start:
                    yield block

    def _agreement(self) -> Agreement:
        if "agreement" not in self._cache:
            files = self.fileset.files()
            chosen = sampled(files)
            head_bytes = sample_bytes(len(chosen))
            samples = [s for s in in_threads(lambda f: self._sample(f, head_bytes), chosen) if s is not None]
            agreed = agree(samples, dtypes=self.dtypes, type_conflicts=self.type_conflicts, reader=self.name)
            schema = self.added.extend(agreed.schema, (f.path for f in files))
            self._cache["agreement"] = replace(agreed, schema=schema)
        agreement: Agreement = self._cache["agreement"]
        return agreement

    def _sample(self, file: File, head_bytes: int) -> Sample | None:
        data, whole = self._head(file.path, head_bytes)
        names, begin = self.header(data, file.path)
        if not names:
            return None
        end = len(data) if whole else pieces.csv_record_end(data, self.delimiter_byte)
        text = _parse(
            data[begin : max(begin, end)], self, names, dict.fromkeys(names, pa.binary()), None, lambda _row: "skip"
        )
        forced = {name for name, _ in self.dtypes}
        fields = {}
        for name, column in zip(names, text.columns, strict=True):
            fields[name] = pa.null() if name in forced else cells.infer_cells(cells.decoded(column), self.null_values)
        return Sample(file.path, pa.schema(fields))

    def _head(self, path: str, head_bytes: int) -> tuple[bytes, bool]:
        """Return the beginning of a file with at least one whole record, and whether that is all of it."""
        with self.open(path) as stream:
            data = b""
            while True:
                more = stream.read(head_bytes)
                data += more
                if not more:
                    return data, True
                if len(data) >= head_bytes:
                    if pieces.csv_record_end(data, self.delimiter_byte):
                        return data, False
                    head_bytes = 2 * len(data)

    def _may_cut(self, file: File) -> bool:
        return not is_url(file.path) and not codec_of(file.path) and self.is_utf8

    def _cuts(self, file: File) -> list[int]:
        """Find places to cut by following the quotes from the beginning, as the reader does."""
        cuts: list[int] = []
        last = 0
        with ByteStream(file.path, end=file.size_bytes) as stream:
            for piece in pieces.pieces(stream, self.record_end, label=file.path):
                if piece.offset - last >= SPLIT_BYTES and file.size_bytes - piece.offset >= SPLIT_BYTES // 4:
                    last = piece.offset
                    cuts.append(last)
        return cuts

    @property
    def is_utf8(self) -> bool:
        """Whether the files need no transcoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    @property
    def delimiter_byte(self) -> int:
        """The delimiter as a number."""
        return ord(self.delimiter)

    def record_end(self, data: bytes) -> int:
        """Return the end of the last whole record."""
        return pieces.csv_record_end(data, self.delimiter_byte)

    def open(self, path: str, start: int = 0, end: int | None = None) -> Any:
        """Open a file as a stream of UTF-8."""
        stream = ByteStream(path, start=start, end=end, storage_options=self.fileset.storage_options)
        return stream if self.is_utf8 else _Transcoded(stream, path, self.encoding)

    def header(self, data: bytes | memoryview, path: str) -> tuple[list[str], int]:
        """Return the column names of a file that begins with `data`, and where its first row begins.

        Raises:
            SourceError: two columns have the same name, or `column_names` has another number of names.
        """
        begin = len(pieces.BOM) if data[:3] == pieces.BOM else 0
        while data[begin : begin + 1] in (b"\n", b"\r"):
            begin += 1
        end = begin + pieces.first_record_end(memoryview(data)[begin:], self.delimiter_byte)
        if begin >= len(data):
            return list(self.column_names or ()), begin
        record = bytes(data[begin:end]).decode(errors="backslashreplace")
        found = next(csv.reader([record], delimiter=self.delimiter), [])
        names = found
        if self.column_names is not None:
            names = list(self.column_names)
            if len(names) != len(found):
                raise SourceError(
                    f"{path} has {len(found)} columns, but column_names= names {len(names)}; name them all, in order"
                )
        elif not self.has_header:
            names = [f"f{i}" for i in range(len(found))]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise SourceError(
                f"{path} has two columns named {twice!r}; pass column_names=[…] to give each a name of its own"
            )
        return names, end if self.has_header else begin


@dataclass(frozen=True, slots=True)
class _FileReader:
    """Reads one extent into blocks."""

    source: CsvSource
    extent: Extent
    schema: pa.Schema
    wanted: tuple[str, ...] | None

    def blocks(self, first: int) -> Iterator[Block]:
        """Yield the blocks of the extent; its first row has the ordinal `first` in the split."""
        source, options = self.source, self.source.fileset.storage_options
        extent = aligned(self.extent, options)
        origin = Origin(self.extent.label if self.extent.start else self.extent.path, first)
        names: list[str] = []
        if extent.start:
            names, _ = source.header(source._head(extent.path, _HEADER_BYTES)[0], extent.path)
        with source.open(extent.path, extent.start, extent.end) as stream:
            parts = pieces.pieces(stream, source.record_end, label=extent.path, whole_bytes=CUT_ABOVE_BYTES)
            for piece in parts:
                data, unclosed = piece.data, b""
                if piece.offset == 0 and not extent.start:
                    names, begin = source.header(piece.data, extent.path)
                    data = memoryview(data)[begin:]
                if piece.last:
                    data, unclosed = pieces.cut_unclosed(data, source.delimiter_byte)
                block = self._block(data, unclosed, names, first, origin)
                if block.end > block.start:
                    yield from block.cut_by_bytes(pieces.PIECE_BYTES)
                first = block.end[0]

    def _block(self, data: bytes | memoryview, unclosed: bytes, names: list[str], first: int, origin: Origin) -> Block:
        wanted = names if self.wanted is None else [n for n in names if n in set(self.wanted)]
        ragged: list[tuple[int, Misfit]] = []

        def on_ragged(row: Any) -> str:
            message = (
                f"the row has {row.actual_columns} cells where the header has {row.expected_columns}: "
                f"{row.text[:200]!r}; check its delimiters and quotes"
            )
            ragged.append((row.number - 1, Misfit(message, {"line": row.text})))
            return "skip"

        types = {n: self._type_of(n) for n in names}
        parsed = wanted or names[:1]
        misfits: dict[int, Misfit] = {}
        try:
            table = _parse(data, self.source, names, types, parsed, on_ragged)
            batch = _one_batch(table)
            careful = self._has_lost_zeros(data, names, types, parsed)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the latter: a type that Arrow's parser does not know
            careful = True
        if careful:
            ragged.clear()
            batch, misfits = self._read_carefully(data, names, types, wanted or names[:1], on_ragged)
        if unclosed:
            line = unclosed[:1000].decode(errors="backslashreplace")
            message = f"a quoted cell is opened and never closed before the end of the file: {line[:200]!r}"
            ragged.append((batch.num_rows + len(ragged), Misfit(message, {"line": line})))
        return block_of(
            batch,
            schema=self.schema,
            wanted=self.wanted,
            added=self.source.added,
            path=self.extent.path,
            first=first,
            origin=origin,
            unreadable=ragged,
            misfits=misfits,
            stage=self.source.name,
        )

    def _type_of(self, name: str) -> pa.DataType:
        index = self.schema.get_field_index(name)
        return pa.null() if index < 0 else self.schema.field(index).type

    def _has_lost_zeros(
        self, data: bytes | memoryview, names: list[str], types: dict[str, pa.DataType], parsed: list[str]
    ) -> bool:
        """Find codes such as 007 that Arrow read as numbers: a quick look at all bytes, a closer one only then."""
        forced = {n for n, _ in self.source.dtypes}
        numbers = [n for n in parsed if _is_number(types[n]) and n not in forced]
        if not numbers or not may_hold_codes(data, self.source.delimiter_byte):
            return False
        as_text = {**types, **dict.fromkeys(numbers, pa.binary())}
        table = _parse(data, self.source, names, as_text, numbers, lambda _row: "skip")
        return any(pc.any(pc.match_substring_regex(c, cells.LEADING_ZERO)).as_py() for c in table.columns)

    def _read_carefully(
        self,
        data: bytes | memoryview,
        names: list[str],
        types: dict[str, pa.DataType],
        wanted: list[str],
        on_ragged: Any,
    ) -> tuple[pa.RecordBatch, dict[int, Misfit]]:
        text = _one_batch(_parse(data, self.source, names, dict.fromkeys(names, pa.binary()), None, on_ragged))
        misfits: dict[int, Misfit] = {}
        arrays = []
        for name in wanted:
            done = cells.convert_cells(text.column(name), types[name], self.source.null_values)
            arrays.append(done.column)
            for row in done.misfits.tolist():
                if row not in misfits:
                    whole = {n: text.column(n)[row].as_py().decode(errors="backslashreplace") for n in names}
                    misfits[row] = Misfit(_misfit(name, whole[name], types[name]), whole)
        return pa.RecordBatch.from_arrays(arrays, names=wanted), misfits


class _Transcoded:
    """A stream in another encoding, read as UTF-8."""

    def __init__(self, stream: ByteStream, path: str, encoding: str) -> None:
        self._stream, self._path, self._encoding = stream, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def __enter__(self) -> _Transcoded:
        self._stream.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        while True:
            data = self._stream.read(size)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise SourceError(
                    f"{self._path} is not {self._encoding}: {error}; pass the encoding that it has as encoding="
                ) from error
            if text or not data:
                return text.encode()

    def view(self, size: int) -> memoryview:
        return memoryview(self.read(size))


def may_hold_codes(data: bytes | memoryview, delimiter: int) -> bool:
    """Say whether a cell may begin with a zero that a digit follows; quick, and never wrong when it says no.

    >>> may_hold_codes(b"1,007,x", 44), may_hold_codes(b"1,0,0.5,100", 44)
    (True, False)
    """
    text = np.frombuffer(data, dtype=np.uint8)
    if len(data) >= 2 and data[0] == 48 and data[1] >= 48:
        return True
    low = max(delimiter, 44) if delimiter < 48 else 44
    for at in range(0, max(0, len(text) - 2), pieces.CACHE_BYTES):
        part = text[at : at + pieces.CACHE_BYTES + 2]
        hits = part[1:-1] == 48
        hits &= part[2:] >= 48
        before = part[:-2] <= low
        if delimiter > low:
            before |= part[:-2] == delimiter
        hits &= before
        if hits.any() and _begins_cell(text, np.flatnonzero(hits) + at, delimiter):
            return True
    return False


def _begins_cell(text: NDArray[np.uint8], before: NDArray[np.int64], delimiter: int) -> bool:
    """Say whether one of the places is the end of what may stand before a cell's first character."""
    # a blank or sign may itself stand at the beginning of a cell
    previous = text[before]
    inner = np.isin(previous, (32, 9, 43))
    earlier = text[np.maximum(before - 1, 0)]
    edges = (delimiter, 10, 13, 34)
    begins = np.isin(previous, edges) | (inner & (np.isin(earlier, (*edges, 32)) | (before == 0)))
    return bool(begins.any())


def _parse(
    data: bytes | memoryview,
    source: CsvSource,
    names: Sequence[str],
    types: dict[str, pa.DataType],
    include: Sequence[str] | None,
    on_ragged: Any,
) -> pa.Table:
    if _is_blank(data):
        kept = list(include) if include is not None else list(names)
        return pa.table({n: pa.array([], types[n]) for n in kept})
    return pcsv.read_csv(
        pa.BufferReader(data),
        # one block: quoted line breaks cannot lie across two
        read_options=pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names)),
        parse_options=pcsv.ParseOptions(delimiter=source.delimiter, invalid_row_handler=on_ragged),
        convert_options=pcsv.ConvertOptions(
            column_types=types,
            include_columns=list(include) if include is not None else None,
            null_values=list(source.null_values),
            strings_can_be_null=False,
            true_values=list(cells.TRUE_VALUES),
            false_values=list(cells.FALSE_VALUES),
        ),
    )


def _is_blank(data: bytes | memoryview) -> bool:
    """Say whether there are no rows at all."""
    head = bytes(data[:64])
    return not head.strip(b"\r\n") and (len(data) <= len(head) or not bytes(data).strip(b"\r\n"))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], t) for t in table.schema.types], schema=table.schema)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _misfit(name: str, value: str, expected: pa.DataType) -> str:
    shown = value if len(value) <= 100 else value[:100] + "…"
    return (
        f"column {name!r}: {shown!r} is not {expected}, the type found in the sample; "
        f"pass dtypes={{{name!r}: 'string'}} to read the column as text"
    )
