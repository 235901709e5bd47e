"""Which bytes of which files make up a split: packing of small files, cutting of large ones, digests."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.metrics.quantities import count
from headrace.sources.source import Split
from headrace.sources.storage import byte_ranges, codec_of, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace.sources.storage import File

# These decide which rows stand in which split. Changing one makes earlier runs impossible to resume.
SPLIT_BYTES = 16 * 1024 * 1024
CUT_ABOVE_BYTES = 24 * 1024 * 1024
MAX_FILES_PER_SPLIT = 512

_ALIGN_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Extent:
    """A byte range of a file. For formats of lines it stands for the lines that begin inside it."""

    path: str
    start: int = 0
    end: int | None = None
    """None: to the end of the file."""

    @property
    def label(self) -> str:
        """The file, and the range where it is a part."""
        return (
            f"{self.path} [bytes {self.start:,} to {self.end:,}]" if self.start or self.end is not None else self.path
        )


@dataclass(frozen=True, slots=True)
class Portion:
    """What a split of a file source carries."""

    extents: tuple[Extent, ...]
    version: str
    """Digest of the files' sizes and stamps when they were listed; "" where a store gives no stamp."""
    stamps: tuple[str, ...] = ()
    """Size and stamp of each extent's file."""


def plan_splits(files: Sequence[File], cuts: Callable[[File], Sequence[int]]) -> list[Split]:
    """Make the splits of a file source: large files cut at the offsets that `cuts` gives, small ones packed together.

    `cuts` is asked only for files above CUT_ABOVE_BYTES. Splits depend on the input alone.
    """
    splits: list[Split] = []
    for group in _groups(files):
        head = group[0]
        offsets = list(cuts(head)) if len(group) == 1 and head.size_bytes > CUT_ABOVE_BYTES else []
        if offsets:
            edges = [0, *offsets, head.size_bytes]
            for start, end in pairwise(edges):
                splits.append(_split(len(splits), [Extent(head.path, start, end)], end - start, group))
        else:
            size = sum(max(0, f.size_bytes) for f in group)
            splits.append(_split(len(splits), [Extent(f.path) for f in group], size, group))
    return splits


def even_cuts(file: File) -> list[int]:
    """Return cuts every SPLIT_BYTES, for formats whose lines can be found from any place.

    Compressed files cannot be read from the middle and are not cut.
    """
    if codec_of(file.path):
        return []
    pieces = max(1, round(file.size_bytes / SPLIT_BYTES))
    return [file.size_bytes * i // pieces for i in range(1, pieces)]


def align(path: str, offset: int, storage_options: Mapping[str, Any] | None) -> int:
    r"""Return the first place at or after `offset` where a line begins (after a "\n"), or the end of the file."""
    if offset == 0:
        return 0
    at = offset - 1
    for data in byte_ranges(path, at, 2**62, storage_options, _ALIGN_BYTES):
        found = bytes(data).find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return at


def aligned(extent: Extent, storage_options: Mapping[str, Any] | None) -> Extent:
    """Return the extent with its edges moved to the beginnings of lines."""
    if extent.end is None:
        return extent
    start = align(extent.path, extent.start, storage_options)
    return Extent(extent.path, start, max(start, align(extent.path, extent.end, storage_options)))


def changed_file(split: Split) -> str | None:
    """Return a local file of a split that is not what it was when it was listed; None where there is none.

    One that is gone was there to be read, or reading would have said so.
    """
    portion = split.detail
    if not isinstance(portion, Portion):
        return None
    for extent, stamp in zip(portion.extents, portion.stamps, strict=False):
        if is_url(extent.path) or stamp.startswith("-1 "):  # a pipe changes by being read
            continue
        with suppress(FileNotFoundError):
            info = os.stat(extent.path)
            if stamp != f"{info.st_size} {info.st_mtime_ns}":
                return extent.path
    return None


def version_of(split: Split) -> str:
    """Return sizes and modification times (etags where remote) as they were listed, digested."""
    portion: Portion = split.detail
    return portion.version or uuid4().hex  # nothing to compare: never "unchanged", so that the fingerprint decides


def fingerprint_of(split: Split, *, storage_options: Mapping[str, Any] | None, lines: bool, salt: str = "") -> str:
    """Return the digest of a split's content: the bytes of local extents, the etags of remote ones.

    `lines` says that extents stand for the lines that begin in them; `salt` is whatever else the rows depend on.
    """
    import xxhash

    portion: Portion = split.detail
    digest = xxhash.xxh3_128(salt.encode())  # against changes, not against forgery; all bytes of the input pass here
    if portion.version and any(is_url(extent.path) for extent in portion.extents):
        digest.update(portion.version.encode())
        return digest.hexdigest()
    for extent in portion.extents:
        place = aligned(extent, storage_options) if lines else extent
        size = 0
        for data in byte_ranges(place.path, place.start, 2**62 if place.end is None else place.end, storage_options):
            digest.update(data)
            size += len(data)
        digest.update(f"|{size}|".encode())
    return digest.hexdigest()


def _groups(files: Iterable[File]) -> Iterator[list[File]]:
    group: list[File] = []
    size = 0
    for file in files:
        file_size = file.size_bytes if file.size_bytes >= 0 else SPLIT_BYTES
        full = size + file_size > SPLIT_BYTES or len(group) == MAX_FILES_PER_SPLIT
        if group and (file.group != group[0].group or (file.group is None and full)):
            yield group
            group, size = [], 0
        group.append(file)
        size += file_size
    if group:
        yield group


def _split(number: int, extents: list[Extent], size: int, files: Sequence[File]) -> Split:
    stamps = "\n".join(f"{f.size_bytes} {f.stamp}" for f in files)
    edges = f"{extents[0].start} {extents[0].end}"
    known = all(f.stamp for f in files)
    version = hashlib.sha256(f"{stamps}\n{edges}".encode()).hexdigest()[:32] if known else ""
    label = extents[0].label + (f" and {count(len(extents) - 1, 'more file')}" if len(extents) > 1 else "")
    portion = Portion(tuple(extents), version, tuple(f"{f.size_bytes} {f.stamp}" for f in files))
    return Split(number=number, label=label, size_bytes=size, detail=portion)
