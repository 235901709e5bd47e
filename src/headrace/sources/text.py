"""Text files: one row a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.block import Block, Origin
from headrace.sources import pieces
from headrace.sources.agreement import select_columns
from headrace.sources.assembly import NOTHING_ADDED, Added, Following, Misfit, block_of
from headrace.sources.extents import aligned, even_cuts, fingerprint_of, plan_splits, version_of
from headrace.sources.storage import ByteStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sources.extents import Extent
    from headrace.sources.listing import FileSet
    from headrace.sources.source import Split

TEXT_SCHEMA = pa.schema({"text": pa.string()})


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Lines of text files; made by `headrace.read_text`, which documents it."""

    fileset: FileSet
    columns: tuple[str, ...] | None = None
    added: Added = NOTHING_ADDED
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {k: v for k, v in self._cache.items() if k == "schema"}}

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"read_text({self.fileset.label})"

    @property
    def passed_over(self) -> int:
        """Files in the folders that were not taken."""
        return self.fileset.passed_over

    def splits(self) -> Sequence[Split]:
        """List the splits: byte ranges of large files, small files packed."""
        if "splits" not in self._cache:
            self._cache["splits"] = plan_splits(self.fileset.files(), even_cuts)
        found: Sequence[Split] = self._cache["splits"]
        return found

    def schema(self) -> pa.Schema:
        """Return the columns: `text`, and those that come from paths."""
        return select_columns(self._full_schema(), self.columns, reader=self.name)

    def version(self, split: Split) -> str:
        """Return what changes whenever the files may have changed."""
        return version_of(split)

    def fingerprint(self, split: Split) -> str:
        """Return the digest of the split's bytes."""
        options = self.fileset.storage_options
        return fingerprint_of(split, storage_options=options, lines=True, salt=self.added.salt(split))

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the lines of a split."""
        wanted = self.columns if columns is None else tuple(columns)
        first = 0
        for extent in split.detail.extents:
            blocks = Following(self._blocks(extent, wanted, first), first)
            yield from filter(lambda block: block.end[0] > start, blocks)
            first = blocks.end

    def _full_schema(self) -> pa.Schema:
        if "schema" not in self._cache:
            self._cache["schema"] = self.added.extend(TEXT_SCHEMA, (f.path for f in self.fileset.files()))
        return self._cache["schema"]

    def _blocks(self, extent: Extent, wanted: tuple[str, ...] | None, first: int) -> Iterator[Block]:
        options = self.fileset.storage_options
        place = aligned(extent, options)
        origin = Origin(extent.label if extent.start else extent.path, first)
        schema = self._full_schema()
        with ByteStream(place.path, start=place.start, end=place.end, storage_options=options) as stream:
            for piece in pieces.pieces(stream):
                data = piece.data
                if piece.offset == 0 and not place.start and data[:3] == pieces.BOM:
                    data = data[3:]
                if not data:
                    continue
                lines, broken = split_lines(data)
                if piece.too_long:
                    broken = {0: pieces.too_long(piece)}
                block = block_of(
                    pa.RecordBatch.from_arrays([lines], names=["text"]),
                    schema=schema,
                    wanted=wanted,
                    added=self.added,
                    path=extent.path,
                    first=first,
                    origin=origin,
                    stage=self.name,
                    misfits=broken,
                )
                first = block.end[0]
                waiting = [block]
                del piece, data, lines, block  # of what is sent on nothing is kept: it may be large
                yield waiting.pop()


def split_lines(data: bytes | memoryview) -> tuple[pa.Array, dict[int, Misfit]]:
    r"""Return the lines without their line ends, and those that are not UTF-8 (as they can be shown).

    >>> split_lines(b"a\r\n\nb")[0].to_pylist()
    ['a', '', 'b']
    """
    body = data[:-1] if data[-1:] == b"\n" else data
    offsets = pa.py_buffer(np.array([0, len(body)], dtype=np.int64))
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(body)])
    lines = pc.split_pattern(whole, b"\n").values.cast(pa.binary())
    broken: dict[int, Misfit] = {}
    try:
        text = lines.cast(pa.string())
    except pa.ArrowInvalid:
        shown = []
        for row, line in enumerate(lines.to_pylist()):
            try:
                shown.append(line.decode())
            except UnicodeDecodeError as error:
                shown.append(line.decode(errors="backslashreplace"))
                broken[row] = Misfit(f"the line is not UTF-8: {error}", {"line": shown[-1]})
        text = pa.array(shown, pa.string())
    ends = pc.ends_with(text, "\r")
    if pc.any(ends).as_py():
        text = pc.if_else(ends, pc.utf8_slice_codeunits(text, 0, -1), text)
    return text, broken
