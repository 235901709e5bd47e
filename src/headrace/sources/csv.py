"""CSV files: Arrow's parser where every cell fits its column's type, a careful second look where one does not."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
from headrace.sources.assembly import NOTHING_ADDED, Added, Following, Misfit, block_of
from headrace.sources.csv_parser import ENCODING_ADVICE, CsvParser
from headrace.sources.extents import CUT_ABOVE_BYTES, SPLIT_BYTES, aligned, fingerprint_of, plan_splits, version_of
from headrace.sources.packs import lines_of, read_packs
from headrace.sources.storage import ByteStream, codec_of, is_url
from headrace.sources.transcoded import Transcoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sources.extents import Extent
    from headrace.sources.listing import FileSet
    from headrace.sources.packs import Pack
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
        names = None if wanted is None else tuple(wanted)
        yield from read_packs(
            split.detail.extents, self.open, lambda extent: _FileReader(self, extent, schema, names), start=start
        )

    def _agreement(self) -> Agreement:
        if "agreement" not in self._cache:
            files = self.fileset.files()
            chosen = sampled(files)
            head_bytes = sample_bytes(len(chosen))
            heads = [h for h in in_threads(lambda f: self._sample(f, head_bytes), chosen) if h is not None]
            samples = self._typed(heads)
            agreed = agree(samples, dtypes=self.dtypes, type_conflicts=self.type_conflicts, reader=self.name)
            schema = self.added.extend(agreed.schema, (f.path for f in files))
            self._cache["agreement"] = replace(agreed, schema=schema)
        agreement: Agreement = self._cache["agreement"]
        return agreement

    def _sample(self, file: File, head_bytes: int) -> tuple[str, pa.RecordBatch] | None:
        """Return the cells of the first rows of a file; None where there is nothing in it."""
        data, whole = self._head(file.path, head_bytes)
        names, begin = self.header(data, file.path)
        if not names:
            return None
        end = len(data) if whole else pieces.csv_record_end(data, self.delimiter_byte)
        return file.path, self.parser(names).cells(data[begin : max(begin, end)])

    def _typed(self, heads: Sequence[tuple[str, pa.RecordBatch]]) -> list[Sample]:
        """Find out the types of all files; a column is looked at in all files with the same header at once."""
        forced = {name for name, _ in self.dtypes}
        alike: dict[tuple[str, ...], list[int]] = {}
        for at, (_, text) in enumerate(heads):
            alike.setdefault(tuple(text.schema.names), []).append(at)
        fields: list[dict[str, pa.DataType]] = [{} for _ in heads]
        for names, group in alike.items():
            lengths = [heads[at][1].num_rows for at in group]
            for number, name in enumerate(names):
                types = [pa.null()] * len(group)
                if name not in forced:
                    column = pa.concat_arrays([heads[at][1].column(number) for at in group])
                    types = cells.infer_portions(cells.decoded(column), lengths, self.null_values)
                for at, type_ in zip(group, types, strict=True):
                    fields[at][name] = type_
        return [Sample(path, pa.schema(types)) for (path, _), types in zip(heads, fields, strict=True)]

    def parser(
        self, names: Sequence[str], types: dict[str, pa.DataType] | None = None, wanted: Sequence[str] = ()
    ) -> CsvParser:
        """Return what parses pieces of a file with these columns."""
        return CsvParser(
            names=names,
            types=types or {},
            wanted=wanted,
            forced=frozenset(name for name, _ in self.dtypes),
            delimiter=self.delimiter,
            null_values=self.null_values,
        )

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
                    if len(data) > pieces.MAX_RECORD_BYTES:
                        raise _header_too_long(path, pieces.Piece(data[: pieces.SHOWN_BYTES], 0, too_long=True))
                    head_bytes = 2 * len(data)

    def _may_cut(self, file: File) -> bool:
        return not is_url(file.path) and not codec_of(file.path) and self.is_utf8

    def _cuts(self, file: File) -> list[int]:
        """Find places to cut by following the quotes from the beginning, as the reader does."""
        cuts: list[int] = []
        last = 0
        with ByteStream(file.path, end=file.size_bytes) as stream:
            for piece in pieces.pieces(stream, delimiter=self.delimiter_byte):
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

    def open(self, path: str, start: int = 0, end: int | None = None) -> Any:
        """Open a file as a stream of UTF-8."""
        stream = ByteStream(path, start=start, end=end, storage_options=self.fileset.storage_options)
        return stream if self.is_utf8 else Transcoded(stream, path, self.encoding)

    def header(self, data: bytes | memoryview, path: str) -> tuple[list[str], int]:
        """Return the column names of a file that begins with `data`, and where its first row begins.

        Raises:
            SourceError: it is no CSV, two columns have the same name, or `column_names` has another number of names.
        """
        begin = len(pieces.BOM) if data[:3] == pieces.BOM else 0
        while data[begin : begin + 1] in (b"\n", b"\r"):
            begin += 1
        end = begin + pieces.first_record_end(memoryview(data)[begin:], self.delimiter_byte)
        if begin >= len(data):
            return list(self.column_names or ()), begin
        record = self._text_of(bytes(data[begin:end]), path)
        try:
            found = next(csv.reader([record], delimiter=self.delimiter), [])
        except csv.Error as error:
            raise SourceError(
                f"cannot read {path}: it does not begin like CSV ({record[:20]!r} …); check what kind of file it is"
            ) from error
        names = found
        if self.column_names is not None:
            names = list(self.column_names)
            if len(names) != len(found):
                raise SourceError(
                    f"{path} has {len(found)} columns, but column_names= names {len(names)}; name them all, in order"
                )
        elif not self.has_header:
            names = [f"f{i}" for i in range(len(found))]
        elif other := _other_delimiter(found):
            raise SourceError(
                f"{path} has one column {found[0]!r} when it is cut at {self.delimiter!r}; pass delimiter={other!r}, "
                f"or column_names=[{found[0]!r}] if it is one column indeed"
            )
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise SourceError(
                f"{path} has two columns named {twice!r}; pass column_names=[…] to give each a name of its own"
            )
        return names, end if self.has_header else begin

    def _text_of(self, record: bytes, path: str) -> str:
        """Decode the first record; names are better refused than garbled."""
        if b"\0" in record:
            raise SourceError(
                f"cannot read {path}: it holds zero bytes, as binary files and UTF-16 do; for text in UTF-16 pass "
                "encoding='utf16', else check what kind of file it is"
            )
        try:
            return record.decode()
        except UnicodeDecodeError:
            shown = record.decode(errors="backslashreplace")
            if self.has_header and self.column_names is None:
                raise SourceError(f"{path}: the header {shown[:100]!r} is not UTF-8; {ENCODING_ADVICE}") from None
            return shown


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
            parts = pieces.pieces(stream, delimiter=source.delimiter_byte, whole_bytes=CUT_ABOVE_BYTES)
            for piece in parts:
                data, bad = piece.data, None
                if piece.offset == 0 and not extent.start:
                    if piece.too_long:
                        raise _header_too_long(extent.path, piece)
                    names, begin = source.header(piece.data, extent.path)
                    data = memoryview(data)[begin:]
                if piece.too_long:
                    data, bad = b"", pieces.too_long(piece)
                elif piece.last:
                    data, unclosed = pieces.cut_unclosed(data, source.delimiter_byte)
                    bad = _never_closed(unclosed) if unclosed else None
                blocks = Following(self._blocks(data, bad, names, first, origin), first)
                del piece, data  # of what is sent on nothing is kept: it may be large
                for block in blocks:
                    waiting = block.cut_by_bytes(pieces.PIECE_BYTES) if block.end > block.start else []
                    del block
                    while waiting:
                        yield waiting.pop(0)
                first = blocks.end

    def packed(self, pack: Pack, first: int) -> Block | None:
        """Parse many files at once; None where their columns differ, or one of them needs a closer look."""
        source, names = self.source, list[str]()
        bodies: list[bytes] = []
        rows: list[int] = []
        for extent, data in zip(pack.extents, pack.contents, strict=True):
            found, begin = source.header(data, extent.path)
            body = data[begin:]
            if any(line.count(b'"') % 2 for line in body.split(b"\n")) or (names and found and found != names):
                return None
            names = names or found
            bodies.append(body)
            rows.append(lines_of(body) if found else 0)
        parsed = self._parser(names).parse(b"\n".join(bodies))
        if parsed.ragged or parsed.misfits or sum(batch.num_rows for batch in parsed.batches) != sum(rows):
            return None
        return pack.block(
            pa.concat_batches(parsed.batches),
            rows,
            first,
            schema=self.schema,
            wanted=self.wanted,
            added=source.added,
            stage=source.name,
        )

    def _parser(self, names: list[str]) -> CsvParser:
        return self.source.parser(
            names,
            types={n: self._type_of(n) for n in names},
            wanted=names if self.wanted is None else [n for n in names if n in set(self.wanted)],
        )

    def _blocks(
        self, data: bytes | memoryview, bad: Misfit | None, names: list[str], first: int, origin: Origin
    ) -> Iterator[Block]:
        source = self.source
        parsed = self._parser(names).parse(data)
        del data
        if bad is not None:
            parsed.ragged.append((parsed.batches[-1].num_rows + len(parsed.ragged), bad))
        while parsed.batches:
            batch = parsed.batches.pop(0)
            last = not parsed.batches  # what failed belongs to an only batch, or lies behind the last
            block = block_of(
                batch,
                schema=self.schema,
                wanted=self.wanted,
                added=source.added,
                path=self.extent.path,
                first=first,
                origin=origin,
                unreadable=parsed.ragged if last else (),
                misfits=parsed.misfits,
                stage=source.name,
            )
            first, waiting = block.end[0], [block]
            del batch, block
            yield waiting.pop()

    def _type_of(self, name: str) -> pa.DataType:
        index = self.schema.get_field_index(name)
        return pa.null() if index < 0 else self.schema.field(index).type


def _other_delimiter(names: list[str]) -> str | None:
    """Return the character that a header of one name is cut at more likely than where it was.

    >>> _other_delimiter(["id;age"]), _other_delimiter(["id"]), _other_delimiter(["id;", "age"])
    (';', None, None)
    """
    if len(names) != 1:
        return None
    return next((c for c in "\t;|" if c in names[0] and all(part.strip() for part in names[0].split(c))), None)


def _header_too_long(path: str, piece: pieces.Piece) -> SourceError:
    return SourceError(f"{path}: the header cannot be read: {pieces.too_long(piece).message}")


def _never_closed(record: bytes) -> Misfit:
    line = record[: pieces.SHOWN_BYTES].decode(errors="backslashreplace")
    message = f"a quoted cell is opened and never closed before the end of the file: {line[:200]!r}"
    return Misfit(message, {"line": line})
