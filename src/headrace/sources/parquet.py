"""Parquet files: row groups as splits, columns read only where asked for."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import SchemaError, SourceError
from headrace.records.block import Block, Origin, Unit
from headrace.records.giants import GIANT_BYTES
from headrace.records.types import TypeQuarrelError, cast, has_objects, unify_types
from headrace.sources import int96
from headrace.sources.agreement import Sample, agree, in_threads, sampled, select_columns
from headrace.sources.assembly import NOTHING_ADDED, Added, finish
from headrace.sources.extents import (
    CUT_ABOVE_BYTES,
    SPLIT_BYTES,
    Extent,
    Portion,
    fingerprint_of,
    plan_splits,
    version_of,
)
from headrace.sources.storage import byte_ranges, filesystem, is_url, opened, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from headrace.sources.agreement import Agreement
    from headrace.sources.listing import FileSet
    from headrace.sources.source import Split
    from headrace.sources.storage import File

PARQUET_PATTERNS = ("*.parquet", "*.pq", "*.parq")
BLOCK_BYTES = 8 * 1024 * 1024
PAGED_ABOVE_BYTES = 64 * 1024 * 1024
"""Row groups beyond this are read page by page: their columns would lie in memory as they are in the file."""
PAGE_BUFFER_BYTES = 1024 * 1024

_ADVICE = "read the files apart and cast one of them with map_batches, then union them"


@dataclass(frozen=True, slots=True)
class RowGroups(Extent):
    """Some row groups `[first, last)` of a file; the byte range is where their data lies."""

    first: int = 0
    last: int = 0

    @property
    def label(self) -> str:
        """The file and the row groups."""
        return f"{self.path} [row groups {self.first} to {self.last}]"


@dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """Rows of Parquet files; made by `headrace.read_parquet`, which documents it."""

    fileset: FileSet
    columns: tuple[str, ...] | None = None
    added: Added = NOTHING_ADDED
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {k: v for k, v in self._cache.items() if k == "agreement"}}

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"read_parquet({self.fileset.label})"

    @property
    def passed_over(self) -> int:
        """Files in the folders that are no Parquet files by name."""
        return self.fileset.passed_over

    def splits(self) -> Sequence[Split]:
        """List the splits: row groups of large files, small files packed."""
        if "splits" not in self._cache:
            files = [f for f in self.fileset.files() if f.size_bytes != 0]  # no footer, no rows
            large = [f for f in files if f.size_bytes > CUT_ABOVE_BYTES]
            groups = dict(zip((f.path for f in large), in_threads(self._row_groups, large), strict=True))
            splits: list[Split] = []
            for split in plan_splits(files, lambda _file: ()):
                pieces = groups.get(split.detail.extents[0].path) if split.size_bytes > CUT_ABOVE_BYTES else None
                for piece in _pieces_of(split, pieces or []):
                    splits.append(replace(piece, number=len(splits)))
            self._cache["splits"] = splits
        found: Sequence[Split] = self._cache["splits"]
        return found

    def schema(self) -> pa.Schema:
        """Return the columns and types that hold for the run, from the footers of the files."""
        return select_columns(self._agreement().schema, self.columns, reader=self.name)

    def version(self, split: Split) -> str:
        """Return what changes whenever the files may have changed."""
        return version_of(split)

    def fingerprint(self, split: Split) -> str:
        """Return the digest of the split's bytes, with the footer where the split is a part of a file."""
        options = self.fileset.storage_options
        salt = self.added.salt(split)
        for extent in split.detail.extents:
            if isinstance(extent, RowGroups) and not is_url(extent.path):
                salt += f"|{extent.first}-{extent.last}|{_footer_digest(extent.path)}"
        return fingerprint_of(split, storage_options=options, lines=False, salt=salt)

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the rows of a split."""
        wanted = self.columns if columns is None else tuple(columns)
        first = 0
        for extent in split.detail.extents:
            with self._open(extent.path, paged=split.size_bytes > PAGED_ABOVE_BYTES) as file:
                origin = Origin(extent.label if isinstance(extent, RowGroups) else extent.path, first)
                try:
                    yield from self._blocks(file, extent, wanted, first, start, origin)
                except (pa.ArrowException, OSError) as error:
                    raise unreadable(extent.path, error) from error
                first = origin.base + _rows_of(file, extent)

    def _blocks(
        self,
        file: pq.ParquetFile,
        extent: Extent,
        wanted: tuple[str, ...] | None,
        first: int,
        start: int,
        origin: Origin,
    ) -> Iterator[Block]:
        schema = self._agreement().schema
        own = file.schema_arrow.names
        names = own if wanted is None else [n for n in own if n in set(wanted)]
        for number in _group_numbers(file, extent):
            group = file.metadata.row_group(number)
            if first + group.num_rows <= start:
                first += group.num_rows
                continue
            self._check_times(file, number, names, extent.path)
            row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
            rows = max(1, min(BLOCK_BYTES // row_bytes, 1_000_000))
            batches = file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False)
            for batch in let_go_of_pages(batches, group.total_byte_size):
                end = first + batch.num_rows
                if end > start and end > first:
                    batch = _conformed(batch, schema, extent.path)
                    values = self.added.values(extent.path)
                    done = finish(batch, schema=schema, wanted=wanted, added=values)
                    waiting = [Block(batch=done, unit=Unit(0), start=(first,), end=(end,), origin=origin)]
                    del batch, done  # of what is sent on nothing is kept: it may be large
                    yield waiting.pop()
                first = end

    def _agreement(self) -> Agreement:
        if "agreement" not in self._cache:
            files = self.fileset.files()
            samples = in_threads(self._sample, sampled(files))
            agreed = agree(samples, dtypes=(), type_conflicts="error", reader=self.name, advice=_ADVICE)
            schema = self.added.extend(agreed.schema, (f.path for f in files))
            self._cache["agreement"] = replace(agreed, schema=schema)
        agreement: Agreement = self._cache["agreement"]
        return agreement

    def _sample(self, file: File) -> Sample:
        with self._open(file.path) as opened:
            schema = opened.schema_arrow
        return Sample(file.path, schema.remove_metadata())

    def _row_groups(self, file: File) -> list[RowGroups]:
        with self._open(file.path) as opened:
            metadata = opened.metadata
            bounds = [_byte_range(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
        groups: list[RowGroups] = []
        begin = 0
        for i in range(1, len(bounds) + 1):
            inside = bounds[begin:i]
            size = sum(end - start for start, end in inside)
            if i == len(bounds) or size >= SPLIT_BYTES:
                edges = min(s for s, _ in inside), max(e for _, e in inside)
                groups.append(RowGroups(file.path, *edges, begin, i))
                begin = i
        return groups

    def _open(self, path: str, *, paged: bool = False) -> pq.ParquetFile:
        """Open a file; `paged` reads columns page by page, where a row group is too large to be read as a whole."""
        file = self._opened(path, paged=paged)
        if int96.columns_of(file) and int96.unit_of(file) == "us":
            file.close()
            file = self._opened(path, paged=paged, int96_unit="us")
        for column in file.schema_arrow:
            if has_objects(column.type):
                raise SourceError(
                    f"{path}: column {column.name!r} holds pickled Python objects, which are never loaded from files; "
                    "write the column as text, numbers or lists"
                )
        return file

    def _opened(self, path: str, *, paged: bool = False, int96_unit: str | None = None) -> pq.ParquetFile:
        import pyarrow.parquet as pq

        buffer_bytes = PAGE_BUFFER_BYTES if paged else 0
        options: dict[str, Any] = {
            "buffer_size": buffer_bytes,
            "pre_buffer": is_url(path) and not paged,  # it reads ahead, and keeps what it has read
            "coerce_int96_timestamp_unit": int96_unit,
        }
        try:
            if is_url(path):
                fs, inner = filesystem(path, self.fileset.storage_options)
                return pq.ParquetFile(opened(fs, inner), **options)
            return pq.ParquetFile(pa.OSFile(path), **options)
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"cannot read {path}: it is no Parquet file, or is truncated; check it, or fetch it again"
            ) from error
        except Exception as error:
            raise unreadable(path, error) from error

    def _check_times(self, file: pq.ParquetFile, number: int, names: Sequence[str], path: str) -> None:
        """Refuse times that would be read as others."""
        doubtful = [name for name in names if name in int96.columns_of(file)]
        if doubtful and int96.unit_of(file) == "ns":
            with self._opened(path, int96_unit="us") as exact:
                int96.refuse_wrapped(exact.read_row_group(number, columns=doubtful), path)


def let_go_of_pages(batches: Iterator[pa.RecordBatch], nbytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a row group of `nbytes`.

    While they come Arrow keeps the pages at hand, packed and unpacked, which for a giant row are as large as the row.
    So where little is left behind one, that is read first.
    """
    waiting: deque[pa.RecordBatch] = deque()
    for batch in batches:
        nbytes -= batch.nbytes
        giant = batch.nbytes > GIANT_BYTES
        waiting.append(batch)
        del batch
        ahead = 0
        while giant and nbytes <= GIANT_BYTES and ahead <= GIANT_BYTES and (more := next(batches, None)) is not None:
            waiting.append(more)
            ahead += more.nbytes
            nbytes -= more.nbytes
        while waiting:
            yield waiting.popleft()


def _pieces_of(split: Split, groups: Sequence[RowGroups]) -> list[Split]:
    if len(groups) < 2:
        return [split]
    edges = [
        hashlib.sha256(f"{split.detail.version} {g.first} {g.last}".encode()).hexdigest()[:32]
        if split.detail.version
        else ""
        for g in groups
    ]
    return [
        replace(
            split, label=g.label, size_bytes=(g.end or 0) - g.start, detail=Portion((g,), version, split.detail.stamps)
        )
        for g, version in zip(groups, edges, strict=True)
    ]


def _group_numbers(file: pq.ParquetFile, extent: Extent) -> range:
    if isinstance(extent, RowGroups):
        return range(extent.first, extent.last)
    return range(file.metadata.num_row_groups)


def _rows_of(file: pq.ParquetFile, extent: Extent) -> int:
    return sum(int(file.metadata.row_group(i).num_rows) for i in _group_numbers(file, extent))


def _byte_range(group: Any) -> tuple[int, int]:
    starts, ends = [], []
    for i in range(group.num_columns):
        column = group.column(i)
        begin = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            begin = min(begin, column.dictionary_page_offset)
        starts.append(begin)
        ends.append(begin + column.total_compressed_size)
    return min(starts, default=0), max(ends, default=0)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    if not batch.schema.names:
        return batch
    arrays = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        index = schema.get_field_index(name)
        wanted = column.type if index < 0 else schema.field(index).type
        if not column.type.equals(wanted):
            try:
                column = cast(column, unify_types(column.type, wanted, name))
            except (TypeQuarrelError, pa.ArrowInvalid):
                raise SchemaError(
                    f"column {name!r} is {column.type} in {path} and {wanted} in the files sampled; {_ADVICE}"
                ) from None
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _footer_digest(path: str) -> str:
    """Digest the footer: what the file says about itself at its end."""
    import os

    size = os.path.getsize(path)
    tail = b"".join(map(bytes, byte_ranges(path, max(0, size - 8), size, None)))
    length = int.from_bytes(tail[:4], "little")
    digest = hashlib.sha256()
    for data in byte_ranges(path, max(0, size - 8 - length), size, None):
        digest.update(data)
    return digest.hexdigest()
