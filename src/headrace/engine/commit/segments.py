"""Segments: hidden append-only files of finished blocks that are not in a published part yet.

A record is a run of blocks that follow one another: magic, checksum, length, then one frame a block (a JSON head, the
ordinals, the columns as an Arrow stream). A record that ends in the middle, or whose checksum is wrong, was being
written when the process died: it and what follows is cut, never read. Records outlive a killed process in the page
cache, so they are not fsynced; after a power cut at worst some finished rows are made again.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.disk_budget import DiskBudget
from headrace.records.block import Block, Origin, Unit
from headrace.records.failure import RowFailure
from headrace.records.position import is_whole
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.engine.commit.done import Place
    from headrace.records.position import Position

MAGIC = b"HRS1"
RECORD = struct.Struct("<4sIQ")
FRAME = struct.Struct("<IQ")
ROLL_BYTES = 64 * 2**20


@dataclass(slots=True, eq=False)
class SegmentFile:
    """One segment file and how many pieces still need it."""

    path: str
    descriptor: int
    size: int = 0
    users: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """Where a block lies in a segment."""

    file: SegmentFile
    offset: int
    length: int


class Segments:
    """The segment files of one output. Not thread-safe, but for `load`."""

    def __init__(self, folder: str, *, suffix: str = "", disk: DiskBudget | None = None) -> None:
        """Use a folder; `suffix` makes the names of new files unlike those of other runs."""
        self._folder = folder
        self._suffix = suffix
        self._disk = disk or DiskBudget()
        # A file goes when nobody needs any of it: of little room each must be a small part.
        self._roll_bytes = min(ROLL_BYTES, (self._disk.limit_bytes or 2**62) // 16)
        self._files: list[SegmentFile] = []
        self._current: SegmentFile | None = None
        self._next = 0

    @property
    def tight(self) -> bool:
        """Whether there is little room on the disk for more than has to be written."""
        return self._disk.tight(self._folder)

    def append(self, blocks: Sequence[Block]) -> list[Saved]:
        """Write blocks that follow one another as one record; after a kill there are all of them or none.

        Raises:
            SinkError: the disk refuses, or its budget is used up.
        """
        file = self._open_file()
        frames = [encode(block) for block in blocks]
        offset = file.size + RECORD.size
        saved = []
        for frame in frames:
            length = sum(len(part) for part in frame)
            saved.append(Saved(file, offset, length))
            offset += length
        payload = [part for frame in frames for part in frame]
        checksum = 0
        for part in payload:
            checksum = zlib.crc32(part, checksum)
        head = RECORD.pack(MAGIC, checksum, offset - file.size - RECORD.size)
        self._write(file, [head, *payload], end=offset)
        file.users += len(saved)
        crash_point("segment.appended")
        return saved

    def load(self, saved: Saved) -> Block:
        """Read a block back."""
        return decode(read(saved.file.descriptor, saved.length, saved.offset))

    def share(self, saved: Saved) -> None:
        """Note that one more piece needs the block."""
        saved.file.users += 1

    def release(self, saved: Saved) -> None:
        """Note that a piece needs the block no longer; files that nobody needs are removed."""
        file = saved.file
        file.users -= 1
        if file.users == 0 and (file is not self._current or self.tight):
            self._current = None if file is self._current else self._current
            self._remove(file)

    def recover(self, *, frontier: Place | None = None) -> Iterator[tuple[Block, Saved]]:
        """Yield the blocks beyond the frontier that earlier runs left, and cut torn tails; call it once, first of all.

        Blocks of records that do not begin and end between input rows are passed over: a later run makes those input
        rows anew, perhaps in other pieces.
        """
        for name in sorted(os.listdir(self._folder)):
            path = os.path.join(self._folder, name)
            file = SegmentFile(path, os.open(path, os.O_RDWR))
            self._files.append(file)
            self._next = max(self._next, int(name.removeprefix("segment-")[:6]) + 1)
            for offset, payload in records(file.descriptor):
                found = list(frames_of(payload))
                start, end = found[0][2].start, found[-1][2].end
                if is_whole(start) and is_whole(end):
                    for at, length, block in found:
                        if frontier is not None and (block.unit, block.end) <= frontier:
                            continue
                        file.users += 1
                        yield block, Saved(file, offset + at, length)
                file.size = offset + len(payload)
            os.ftruncate(file.descriptor, file.size)
            self._disk.take_over(file.size)

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [os.path.basename(file.path) for file in self._files]

    def roll(self) -> list[str]:
        """Let the next record begin a new file; return the paths of the others, which grow no more."""
        self._current = None
        self.trim()
        return [file.path for file in self._files]

    def trim(self) -> None:
        """Remove files that no piece needs (but for the one being written)."""
        for file in [f for f in self._files if f.users == 0 and f is not self._current]:
            self._remove(file)

    def close(self) -> None:
        """Close the files, which stay."""
        for file in self._files:
            os.close(file.descriptor)
        self._files, self._current = [], None

    def remove_all(self) -> None:
        """Close and remove the files."""
        self._current = None
        for file in list(self._files):
            self._remove(file)

    def _open_file(self) -> SegmentFile:
        if self._current is not None and self._current.size < self._roll_bytes:
            return self._current
        full, self._current = self._current, None
        if full is not None and full.users == 0:
            self._remove(full)
        path = os.path.join(self._folder, f"segment-{self._next:06d}{self._suffix}.bin")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise cannot_write(path, error) from error
        self._next += 1
        self._current = SegmentFile(path, descriptor)
        self._files.append(self._current)
        return self._current

    def _write(self, file: SegmentFile, parts: list[bytes | memoryview], *, end: int) -> None:
        at = file.size
        self._disk.take(end - at, self._folder)
        try:
            for i, part in enumerate(parts):
                view = memoryview(part)
                while view:
                    written = os.pwrite(file.descriptor, view, at)
                    view, at = view[written:], at + written
                if i == len(parts) // 2:
                    crash_point("segment.half")
            assert at == end, (at, end)
        except OSError as error:
            os.ftruncate(file.descriptor, file.size)
            self._disk.give_back(end - file.size)
            raise cannot_write(file.path, error) from error
        file.size = end

    def _remove(self, file: SegmentFile) -> None:
        os.close(file.descriptor)
        os.unlink(file.path)
        self._disk.give_back(file.size)
        self._files.remove(file)


def encode(block: Block) -> list[bytes | memoryview]:
    """Return a frame in pieces: head, ordinals, columns."""
    columns = memoryview(_stream_of(block.batch))
    ordinals = b"" if block.ordinals is None else np.ascontiguousarray(block.ordinals, dtype="<i8").tobytes()
    head = json.dumps(
        {
            "unit": [block.unit.split, *block.unit.lane],
            "start": block.start,
            "end": block.end,
            "rows": block.num_rows,
            "errors": block.errors,
            "dense": block.ordinals is None,
            "failures": [asdict(failure) for failure in block.failures],
            "origin": _origin(block),
        }
    ).encode()
    length = FRAME.size + len(head) + len(ordinals) + len(columns)
    return [FRAME.pack(len(head), length), head, ordinals, columns]


def _origin(block: Block) -> list[Any] | None:
    if block.origin is None:
        return None
    first = block.start[0]
    ordinals = [first, first + block.num_rows] if block.ordinals is None else block.ordinals[-1:].tolist()
    failed = [failure.ordinal for failure in block.failures]
    origin = block.origin.clip(first, max([first, *ordinals, *failed]))
    return [origin.file, origin.base, *origin.more]


def _stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    """Write a batch into memory that is measured first: a stream that grows would hold large columns twice."""
    measure = pa.MockOutputStream()
    with pa.ipc.new_stream(measure, batch.schema) as writer:
        writer.write_batch(batch)
    buffer = pa.allocate_buffer(measure.size())
    with pa.FixedSizeBufferWriter(buffer) as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return buffer


def decode(frame: bytes | memoryview) -> Block:
    """Read the block of a frame."""
    head, at = _head(frame)
    ordinals = None
    if not head["dense"]:
        ordinals = np.frombuffer(frame, dtype="<i8", count=head["rows"], offset=at).astype(np.int64)
        at += 8 * head["rows"]
    with pa.ipc.open_stream(pa.py_buffer(frame)[at:]) as reader:
        batch = reader.read_next_batch()
    origin = head["origin"]
    return Block(
        batch=batch,
        unit=Unit(head["unit"][0], tuple(head["unit"][1:])),
        start=tuple(head["start"]),
        end=tuple(head["end"]),
        ordinals=ordinals,
        failures=tuple(RowFailure(**failure) for failure in head["failures"]),
        origin=None
        if origin is None
        else Origin(origin[0], origin[1], tuple((base, file) for base, file in origin[2:])),
        errors=head["errors"],
    )


def frames_of(payload: bytes) -> Iterator[tuple[int, int, Block]]:
    """Yield offset, length and block of every frame in a record's payload."""
    at = 0
    view = memoryview(payload)
    while at < len(payload):
        _, length = FRAME.unpack_from(view, at)
        yield at, length, decode(view[at : at + length])
        at += length


def records(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and payload of every whole record; stops at the first that is torn."""
    offset = 0
    while True:
        head = read(descriptor, RECORD.size, offset)
        if len(head) < RECORD.size:
            return
        magic, checksum, length = RECORD.unpack(head)
        if magic != MAGIC or length > os.fstat(descriptor).st_size - offset:
            return
        payload = read(descriptor, length, offset + RECORD.size)
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield offset + RECORD.size, payload
        offset += RECORD.size + length


def read(descriptor: int, length: int, offset: int) -> bytes:
    """Read `length` bytes, or fewer where the file ends."""
    whole = os.pread(descriptor, length, offset)
    if len(whole) == length:
        return whole
    found = bytearray(whole)
    while len(found) < length:
        more = os.pread(descriptor, length - len(found), offset + len(found))
        if not more:
            break
        found += more
    return bytes(found)


def _head(frame: bytes | memoryview) -> tuple[dict[str, Any], int]:
    size, _ = FRAME.unpack_from(frame)
    return json.loads(bytes(frame[FRAME.size : FRAME.size + size])), FRAME.size + size


def heads(folder: str) -> Iterator[tuple[Unit, Position, int]]:
    """Yield unit, start and rows of every block in a folder of segments, which may be in use by another process."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        try:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
        except FileNotFoundError:  # removed since it was listed
            continue
        try:
            for _, payload in records(descriptor):
                at = 0
                while at < len(payload):
                    frame = memoryview(payload)[at:]
                    head, _ = _head(frame)
                    yield Unit(head["unit"][0], tuple(head["unit"][1:])), tuple(head["start"]), head["rows"]
                    at += FRAME.unpack_from(frame)[1]
        finally:
            os.close(descriptor)


def rows_beyond(folder: str, frontier: Place | None) -> int:
    """Count the finished rows that wait in segments for their part."""
    return sum(rows for unit, start, rows in heads(folder) if frontier is None or (unit, start) >= frontier)
