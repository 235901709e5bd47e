"""Streams of bytes cut into pieces of whole records, also where quoted cells hold line breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.sources.assembly import Misfit
from headrace.sources.giants import CsvRecordEnd, LineEnd
from headrace.sources.quotes import quoted_ranges
from headrace.sources.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.sources.storage import ByteStream

PIECE_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = 1024 * 1024 * 1024
"""A record beyond this is taken for damage: a quote that never closes, or no text file at all. It fails alone."""

SCAN_BYTES = 8 * 1024 * 1024
"""Passes over bytes are made in steps of this size. After each one the thread has to get the interpreter lock
back: smaller steps, which would stay in the processor's cache, lose more than they win beside a busy thread."""

SHOWN_BYTES = 1000
"""How much of a record that cannot be read stands in the dead letters."""

_HEAD_BYTES = 16 * 1024

BOM = b"\xef\xbb\xbf"
_QUOTE = 34

flags = Scratch()
"""A flag for each byte that is looked at."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of whole records."""

    data: bytes | memoryview
    offset: int
    """Where the piece begins in the stream."""
    last: bool = False
    """Whether the stream ends here, if need be inside a record."""
    too_long: bool = False
    """Whether this is no more than the beginning of one record that is longer than MAX_RECORD_BYTES."""


def pieces(
    stream: ByteStream, *, delimiter: int | None = None, whole_bytes: int = 0, piece_bytes: int = PIECE_BYTES
) -> Iterator[Piece]:
    """Yield the stream in pieces of about `piece_bytes` that end where records end.

    Records are lines, or those of CSV where a `delimiter` is given. A stream of at most `whole_bytes` is one piece, a
    memoryview, so that nobody has to look for records. A record longer than a piece is one by itself, a memoryview too;
    of one that is longer than MAX_RECORD_BYTES the beginning is yielded, and the rest passed over.
    """
    carry, offset = b"", 0
    if whole_bytes:
        whole = stream.view(whole_bytes)
        carry = stream.read(piece_bytes)
        if not carry:
            if len(whole):
                yield Piece(whole, offset, last=True)
            return
        carry = bytes(whole) + carry
        del whole
    while True:
        more = stream.read(piece_bytes)
        data = carry + more if carry else more
        if not more:
            if data:
                yield Piece(data, offset, last=True)
            return
        end = line_end(data) if delimiter is None else csv_record_end(data, delimiter)
        if end == 0:
            giant, passed, carry = _giant(stream, data, delimiter, offset, piece_bytes)
            offset += passed
            del data, more
            yield giant.pop()  # nobody but the caller keeps it
            continue
        yield Piece(data[:end], offset)
        carry, offset = data[end:], offset + end


def _giant(
    stream: ByteStream, head: bytes, delimiter: int | None, offset: int, piece_bytes: int
) -> tuple[list[Piece], int, bytes]:
    """Read a record to its end, in place; return it, its length, and what was read behind it."""
    seeker = LineEnd() if delimiter is None else CsvRecordEnd(head, delimiter=delimiter)
    record = bytearray(head)
    passed, end = len(head), 0
    while True:
        too_long = passed > MAX_RECORD_BYTES and not end
        if too_long:
            del record[SHOWN_BYTES:]
        more = stream.read(piece_bytes)
        end = seeker.find(more)
        passed += end or len(more)
        if not too_long:
            record += more[:end] if end else more
        if end or not more:
            return [Piece(memoryview(record), offset, last=not more, too_long=too_long)], passed, more[end:]


def too_long(piece: Piece) -> Misfit:
    """Return why a record that is longer than MAX_RECORD_BYTES cannot be read."""
    shown = bytes(piece.data).decode(errors="backslashreplace")
    return Misfit(
        f"the record that begins at byte {piece.offset:,} is longer than {MAX_RECORD_BYTES:,} bytes; look for a quote "
        f"that is never closed, or another format: {shown[:200]!r}",
        {"line": shown},
    )


def is_utf8(data: bytes | memoryview) -> bool:
    r"""Say whether the bytes are valid UTF-8, at the speed of memory.

    >>> is_utf8("käse".encode()), is_utf8(b"k\xe4se")
    (True, False)
    """
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def count_byte(data: bytes | memoryview, byte: int) -> int:
    r"""Count one byte; quicker than `bytes.count` where it is frequent.

    >>> count_byte(b'1,"a","b"', 34)
    4
    """
    text = np.frombuffer(data, dtype=np.uint8)
    found = flags.room(min(len(text), SCAN_BYTES)).view(np.bool_)
    count = 0
    for at in range(0, len(text), SCAN_BYTES):
        part = text[at : at + SCAN_BYTES]
        count += int(np.count_nonzero(np.equal(part, byte, out=found[: len(part)])))
    return count


def is_blank(data: bytes | memoryview) -> bool:
    r"""Say whether there is nothing but white space.

    >>> is_blank(b" \n"), is_blank(memoryview(b" x"))
    (True, False)
    """
    return not bytes(data[:64]).strip() and (len(data) <= 64 or not bytes(data).strip())


def line_end(data: bytes) -> int:
    r"""Return the place after the last line break.

    >>> line_end(b"a\nb")
    2
    """
    return data.rfind(b"\n") + 1


def csv_record_end(data: bytes, delimiter: int = 44) -> int:
    r"""Return the place after the last line break that ends a record, in bytes that begin with a record.

    >>> csv_record_end(b'1,"a\nb"\n2,"c\n')
    8
    """
    end = data.rfind(b"\n") + 1
    if end == 0 or _QUOTE not in data:
        return end
    opens, closes = quoted_ranges(data, delimiter)
    while end > 0:
        cell = int(np.searchsorted(opens, end - 1)) - 1  # the last quoted cell that opens before the line break
        if cell < 0 or closes[cell] < end - 1:
            return end
        end = data.rfind(b"\n", 0, int(opens[cell])) + 1
    return 0


def first_record_end(data: bytes | memoryview, delimiter: int = 44) -> int:
    r"""Return the place after the first record (the header, say); the whole length where nothing ends it.

    >>> first_record_end(b'a,"b\nc"\n1,2\n')
    8
    """
    head_bytes = _HEAD_BYTES
    while True:
        head = bytes(data[:head_bytes])
        opens, closes = quoted_ranges(head, delimiter)
        end = head.find(b"\n") + 1
        while end > 0:
            cell = int(np.searchsorted(opens, end - 1)) - 1
            if cell < 0 or closes[cell] < end - 1:
                return end
            end = head.find(b"\n", int(closes[cell])) + 1
        if len(head) == len(data):
            return len(data)
        head_bytes *= 8


def cut_unclosed(data: bytes | memoryview, delimiter: int = 44) -> tuple[bytes | memoryview, bytes]:
    r"""Cut off a last record whose quoted cell is still open at the end.

    >>> cut_unclosed(b'1,2\n3,"x\n4,5\n')
    (b'1,2\n', b'3,"x\n4,5\n')
    """
    if count_byte(data, _QUOTE) % 2 == 0:
        return data, b""
    data = bytes(data)
    opens, closes = quoted_ranges(data, delimiter)
    if not len(closes) or closes[-1] < len(data):
        return data, b""  # the odd quote is a character like others
    begin = csv_record_end(data[: opens[-1]], delimiter)
    return data[:begin], data[begin:]
