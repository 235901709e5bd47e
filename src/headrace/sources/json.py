"""JSON Lines files: Arrow's parser where every value fits, line by line where one does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as pjson

from headrace.errors import SchemaError, SourceError
from headrace.records.block import Block, Origin
from headrace.records.columns import empty_columns
from headrace.records.infinities import has_infinities
from headrace.records.types import TypeQuarrelError
from headrace.sources import pieces
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
from headrace.sources.extents import aligned, even_cuts, fingerprint_of, plan_splits, version_of
from headrace.sources.json_values import MisfitError, Target, inferred, loads_object, parse_float_for, widened
from headrace.sources.packs import lines_of, read_packs
from headrace.sources.storage import ByteStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sources.extents import Extent
    from headrace.sources.listing import FileSet
    from headrace.sources.packs import Pack
    from headrace.sources.source import Split
    from headrace.sources.storage import File

JSON_PATTERNS = tuple(
    f"*{kind}{packed}" for kind in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".zst", ".bz2")
)


@dataclass(frozen=True, kw_only=True)
class JsonSource:
    """Rows of JSON Lines files; made by `headrace.read_json`, which documents it."""

    fileset: FileSet
    columns: tuple[str, ...] | None = None
    dtypes: Dtypes = ()
    type_conflicts: TypeConflicts = "error"
    added: Added = NOTHING_ADDED
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {k: v for k, v in self._cache.items() if k == "agreement"}}

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"read_json({self.fileset.label})"

    @property
    def passed_over(self) -> int:
        """Files in the folders that are no JSON files by name."""
        return self.fileset.passed_over

    def splits(self) -> Sequence[Split]:
        """List the splits: byte ranges of large files, small files packed."""
        if "splits" not in self._cache:
            self._cache["splits"] = plan_splits(self.fileset.files(), even_cuts)
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
        agreement = self._agreement()
        wanted = self.columns if columns is None else columns
        names = None if wanted is None else tuple(wanted)
        yield from read_packs(
            split.detail.extents, self.open, lambda extent: _FileReader(self, extent, agreement, names), start=start
        )

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
        rows = self._head_rows(file.path, head_bytes)
        if not rows:
            return None
        names = dict.fromkeys(name for row in rows for name in row)
        forced = {name for name, _ in self.dtypes}
        fields: dict[str, pa.DataType] = {}
        mixed: list[str] = []
        for name in names:
            if name in forced:
                fields[name] = pa.null()
                continue
            try:
                fields[name], as_text = inferred([row.get(name) for row in rows], name)
            except TypeQuarrelError as quarrel:
                if self.type_conflicts == "error":
                    raise SchemaError(
                        f"{self.name}: column {quarrel.column!r} is both {quarrel.left} and {quarrel.right} in "
                        f"{file.path}; pass dtypes={{{name!r}: 'string'}}, or type_conflicts='text' to read such "
                        "columns as text"
                    ) from None
                fields[name], as_text = pa.string(), True
            if as_text:
                mixed.append(name)
        return Sample(file.path, pa.schema(fields), tuple(mixed))

    def _head_rows(self, path: str, head_bytes: int) -> list[dict[str, Any]]:
        data, size = b"", head_bytes
        with self.open(path) as stream:
            while more := stream.read(size):
                data += more
                size = len(data)
                if len(data) > pieces.MAX_RECORD_BYTES and b"\n" not in data:
                    return []  # the beginning of one line that will fail
                if len(data) >= head_bytes and b"\n" in data:
                    data = data[: pieces.line_end(data)]
                    break
        data = data.removeprefix(pieces.BOM)
        if data.lstrip()[:1] == b"[":
            raise SourceError(
                f"{path} holds one JSON array, but read_json reads JSON Lines (one object a line); "
                "convert it, for instance with: jq -c '.[]' old.json > new.jsonl"
            )
        lines = [line for line in data.split(b"\n") if line.strip()]
        rows = [row for row in map(_object, lines) if row is not None]
        if len(lines) > 1 and not rows:
            if lines[0].strip() == b"{":
                raise SourceError(
                    f"{path} holds objects over several lines, but read_json reads JSON Lines (one object a line); "
                    "convert it, for instance with: jq -c . old.json > new.jsonl"
                )
            shown = lines[0][:20].decode(errors="backslashreplace")
            raise SourceError(
                f"{path}: no line at its beginning is a JSON object ({shown!r} …); "
                "read_json reads JSON Lines, one object a line"
            )
        return rows

    def open(self, path: str, start: int = 0, end: int | None = None) -> ByteStream:
        """Open a file as a stream of bytes."""
        return ByteStream(path, start=start, end=end, storage_options=self.fileset.storage_options)


@dataclass(frozen=True, slots=True)
class _FileReader:
    """Reads one extent into blocks."""

    source: JsonSource
    extent: Extent
    agreement: Agreement
    wanted: tuple[str, ...] | None

    def blocks(self, first: int) -> Iterator[Block]:
        """Yield the blocks of the extent; its first row has the ordinal `first` in the split."""
        extent = aligned(self.extent, self.source.fileset.storage_options)
        origin = Origin(self.extent.label if self.extent.start else self.extent.path, first)
        with self.source.open(extent.path, extent.start, extent.end) as stream:
            for piece in pieces.pieces(stream):
                data = piece.data
                if piece.offset == 0 and not extent.start and data[:3] == pieces.BOM:
                    data = data[3:]
                if pieces.is_blank(data):
                    continue
                block = self._block(data, first, origin, too_long=pieces.too_long(piece) if piece.too_long else None)
                first = block.end[0]
                waiting = [block]
                del piece, data, block  # of what is sent on nothing is kept: it may be large
                yield waiting.pop()

    def packed(self, pack: Pack, first: int) -> Block | None:
        """Parse many files at once; None where one of them needs a closer look."""
        contents = [data[3:] if data[:3] == pieces.BOM else data for data in pack.contents]
        rows = [lines_of(data) for data in contents]
        batch = self._parse_fast(b"\n".join(contents))
        if batch is None or batch.num_rows != sum(rows):
            return None
        return pack.block(
            batch,
            rows,
            first,
            schema=self.agreement.schema,
            wanted=self.wanted,
            added=self.source.added,
            stage=self.source.name,
        )

    def _block(self, data: bytes | memoryview, first: int, origin: Origin, *, too_long: Misfit | None) -> Block:
        batch = self._parse_fast(data) if too_long is None else None
        bad_lines: list[tuple[int, Misfit]] = []
        misfits: dict[int, Misfit] = {}
        if batch is None:
            batch, bad_lines, misfits = self._parse_lines(bytes(data) if too_long is None else b"")
        if too_long is not None:
            bad_lines = [(0, too_long)]
        return block_of(
            batch,
            schema=self.agreement.schema,
            wanted=self.wanted,
            added=self.source.added,
            path=self.extent.path,
            first=first,
            origin=origin,
            stage=self.source.name,
            unreadable=bad_lines,
            misfits=misfits,
        )

    def _parse_fast(self, data: bytes | memoryview) -> pa.RecordBatch | None:
        """Let Arrow parse it; None where it fails, or would take text for times or round an integer."""
        own = self._own_schema()
        types = dict(zip(own.names, own.types, strict=True))
        skip_others = self.wanted is not None
        if not skip_others:
            own = pa.schema([f for f in own if not pa.types.is_null(f.type)])  # anything may turn up there
        if not pieces.is_utf8(data):  # Arrow would hand broken text on
            return None
        try:
            table = pjson.read_json(
                pa.BufferReader(data),
                read_options=pjson.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pjson.ParseOptions(
                    explicit_schema=own, unexpected_field_behavior="ignore" if skip_others else "infer"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        changed = [f.type for f in table.schema if not f.type.equals(types.get(f.name, pa.null()))]
        if any(_guesses(type_) for type_ in changed):
            return None
        if any(map(has_infinities, table.columns)):
            return None  # numbers beyond their type: Arrow knows no others
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def _own_schema(self) -> pa.Schema:
        """The columns to look for in the file itself."""
        own = self.agreement.own
        return own if self.wanted is None else pa.schema([f for f in own if f.name in self.wanted])

    def _parse_lines(self, data: bytes) -> tuple[pa.RecordBatch, list[tuple[int, Misfit]], dict[int, Misfit]]:
        rows: list[dict[str, Any]] = []
        bad_lines: list[tuple[int, Misfit]] = []
        number = 0
        parse_float = parse_float_for(self._own_schema().types)
        for line in data.split(b"\n"):
            if not line or line.isspace():
                continue
            try:
                rows.append(loads_object(line, parse_float))
            except ValueError as error:
                shown = line[:1000].decode(errors="backslashreplace")
                why = f"the line is not a JSON object: {error}: {shown[:200]!r}"
                bad_lines.append((number, Misfit(why, {"line": shown})))
            number += 1
        batch, misfits = self._columns(rows)
        return batch, bad_lines, misfits

    def _columns(self, rows: list[dict[str, Any]]) -> tuple[pa.RecordBatch, dict[int, Misfit]]:
        names = dict.fromkeys(self._own_schema().names)
        if self.wanted is None:
            names.update(dict.fromkeys(name for row in rows for name in row))
        misfits: dict[int, Misfit] = {}
        arrays: dict[str, pa.Array] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            target = self._target(name, values)
            kept: list[Any] = []
            for number, value in enumerate(values):
                try:
                    kept.append(target.fit(value))
                except MisfitError:
                    kept.append(None)
                    misfits.setdefault(number, self._misfit(name, value, rows[number]))
            arrays[name] = pa.array(kept, target.type)
        if not arrays:
            return empty_columns(len(rows)), misfits
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)), misfits

    def _target(self, name: str, values: list[Any]) -> Target:
        index = self.agreement.own.get_field_index(name)
        if index < 0:  # a key that turns up late
            return _late(values, name)
        known = self.agreement.own.field(index).type
        if name in self.agreement.as_text or name in self._forced():
            return Target(known, name in self.agreement.as_text)
        type_ = widened(values, known)
        return Target(type_, exact=pa.types.is_integer(known) and pa.types.is_floating(type_))

    def _misfit(self, name: str, value: Any, row: dict[str, Any]) -> Misfit:
        shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= 100 else shown[:100] + "…"
        whose = "asked for by dtypes=" if name in self._forced() else "the type found in the sample"
        return Misfit(
            f"column {name!r}: {shown} is not {self.agreement.own.field(name).type}, {whose}; "
            f"pass dtypes={{{name!r}: 'string'}} to read the column as text",
            row,
        )

    def _forced(self) -> set[str]:
        return {name for name, _ in self.source.dtypes}


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        return loads_object(line)
    except ValueError:
        return None


def _late(values: list[Any], name: str) -> Target:
    try:
        return Target(*inferred(values, name))
    except TypeQuarrelError:
        return Target(pa.string(), as_text=True)


def _guesses(type_: pa.DataType) -> bool:
    """Say whether Arrow may have guessed wrongly: text as times, integers beyond 64 bits as floats."""
    if pa.types.is_struct(type_):
        return any(_guesses(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _guesses(type_.value_type)
    return bool(pa.types.is_temporal(type_) or pa.types.is_floating(type_))
