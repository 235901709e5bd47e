"""Tiny files, many of which are parsed in one go."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.records.block import Origin
from headrace.sources.assembly import NOTHING_ADDED, Following, block_of
from headrace.sources.partitions import constant_column
from headrace.sources.pieces import PIECE_BYTES
from headrace.sources.storage import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.records.block import Block
    from headrace.sources.assembly import Added
    from headrace.sources.extents import Extent


@dataclass(slots=True)
class Pack:
    """Files that follow one another, and what is in them."""

    extents: list[Extent] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)

    def block(
        self,
        batch: pa.RecordBatch,
        rows: Sequence[int],
        first: int,
        *,
        schema: pa.Schema,
        wanted: Sequence[str] | None,
        added: Added,
        stage: str,
    ) -> Block:
        """Make the block of what was parsed, given how many rows each file has and the ordinal of the first of all."""
        starts = [first, *(first + n for n in accumulate(rows))]
        origin = Origin.joined([Origin(extent.path, at) for extent, at in zip(self.extents, starts, strict=False)])
        assert origin is not None
        values = [added.values(extent.path) for extent in self.extents]
        for name in dict.fromkeys(name for one in values for name in one):
            if name not in batch.schema.names:  # a file's own column goes before those that come from paths
                type_ = schema.field(name).type
                parts = [constant_column(one.get(name), type_, n) for one, n in zip(values, rows, strict=True)]
                batch = batch.append_column(name, pa.concat_arrays(parts))
        return block_of(
            batch,
            schema=schema,
            wanted=wanted,
            added=NOTHING_ADDED,
            path="",
            first=first,
            origin=origin,
            stage=stage,
        )


class PackReader(Protocol):
    """What reads one extent, or a pack that begins with it."""

    def blocks(self, first: int) -> Iterator[Block]:
        """Yield the blocks of the extent; its first row has the ordinal `first` in the split."""
        ...

    def packed(self, pack: Pack, first: int) -> Block | None:
        """Return the rows of all files of a pack; None where they have to be read one by one."""
        ...


def read_packs(
    extents: Sequence[Extent],
    open_file: Callable[[str], Any],
    reader_of: Callable[[Extent], PackReader],
    *,
    start: int = 0,
) -> Iterator[Block]:
    """Yield the rows of a split behind the ordinal `start`; `open_file` opens a file as a stream of UTF-8."""

    def content(path: str) -> bytes:
        with open_file(path) as stream:
            return b"".join(iter(lambda: stream.read(PIECE_BYTES), b""))

    first = 0
    for pack in packs(extents, content):
        packed = reader_of(pack.extents[0]).packed(pack, first) if len(pack.extents) > 1 else None
        if packed is not None:
            first = packed.end[0]
            if first > start:
                yield packed
            continue
        for extent in pack.extents:
            blocks = Following(reader_of(extent).blocks(first), first)
            yield from filter(lambda block: block.end[0] > start, blocks)
            first = blocks.end


def packs(
    extents: Sequence[Extent], content: Callable[[str], bytes], *, pack_bytes: int = PIECE_BYTES
) -> Iterator[Pack]:
    """Read whole files and group them, about `pack_bytes` at a time.

    What is alone, or compressed so that its size is not known, comes alone and is not read here.
    """
    if len(extents) == 1 or any(codec_of(extent.path) for extent in extents):
        yield from (Pack([extent]) for extent in extents)
        return
    pack, nbytes = Pack(), 0
    for extent in extents:
        data = content(extent.path)
        if pack.extents and nbytes + len(data) > pack_bytes:
            yield pack
            pack, nbytes = Pack(), 0
        pack.extents.append(extent)
        pack.contents.append(data)
        nbytes += len(data)
    if pack.extents:
        yield pack


def lines_of(data: bytes) -> int:
    r"""Count the lines that are not blank.

    >>> lines_of(b"a\n\n \nb")
    2
    """
    return sum(1 for line in data.split(b"\n") if line and not line.isspace())
