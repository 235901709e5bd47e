"""Streams of bytes cut into pieces of whole records, also where quoted cells hold line breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.sources.assembly import Misfit
from headrace.sources.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

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
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34

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
    stream: ByteStream,
    record_end: Callable[[bytes], int],
    *,
    whole_bytes: int = 0,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Piece]:
    """Yield the stream in pieces of about `piece_bytes` that end where records end; a long record makes a long piece.

    `record_end(data)` returns the end of the last whole record in bytes that begin with a record, or 0. A stream of at
    most `whole_bytes` is one piece, a memoryview, so that nobody has to look for records. Of a record that is longer
    than MAX_RECORD_BYTES the beginning is yielded, and the rest passed over: up to the next line break, outside quotes
    if `record_end` is not `line_end`.
    """
    carry, offset, want = b"", 0, piece_bytes
    quoted = record_end is not line_end
    if whole_bytes:
        whole = stream.view(whole_bytes)
        carry = stream.read(piece_bytes)
        if not carry:
            if len(whole):
                yield Piece(whole, offset, last=True)
            return
        carry = bytes(whole) + carry
    while True:
        more = stream.read(want)
        data = carry + more if carry else more
        if not more:
            if data:
                yield Piece(data, offset, last=True)
            return
        end = record_end(data)
        if end == 0:
            if len(data) > MAX_RECORD_BYTES:
                yield Piece(data[:SHOWN_BYTES], offset, too_long=True)
                inside = quoted and data.count(b'"') % 2 == 1
                offset += len(data)
                carry, passed = _pass_over(stream, inside=inside, quoted=quoted, piece_bytes=piece_bytes)
                offset, want = offset + passed, piece_bytes
                continue
            carry, want = data, len(data)  # doubling, so that a giant is not scanned over and over
            continue
        yield Piece(data[:end], offset)
        carry, offset, want = data[end:], offset + end, piece_bytes


def too_long(piece: Piece) -> Misfit:
    """Return why a record that is longer than MAX_RECORD_BYTES cannot be read."""
    shown = bytes(piece.data).decode(errors="backslashreplace")
    return Misfit(
        f"the record that begins at byte {piece.offset:,} is longer than {MAX_RECORD_BYTES:,} bytes; look for a quote "
        f"that is never closed, or another format: {shown[:200]!r}",
        {"line": shown},
    )


def _pass_over(stream: ByteStream, *, inside: bool, quoted: bool, piece_bytes: int) -> tuple[bytes, int]:
    """Read to the end of the record; return what was read behind it, and how many bytes belong to the record."""
    passed = 0
    while data := stream.read(piece_bytes):
        text = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        if quoted:
            odd = (np.cumsum(text == _QUOTE) + inside) % 2 == 1  # a doubled quote counts as none
            ends, inside = ends[~odd[ends]], bool(odd[-1])
        if len(ends):
            end = int(ends[0]) + 1
            return data[end:], passed + end
        passed += len(data)
    return b"", passed


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


def quoted_ranges(data: bytes, delimiter: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where quoted cells open and close; a cell left open closes at `len(data)`.

    A quote opens a cell only at the cell's very beginning; elsewhere in an unquoted cell it is a character like others.
    If every second quote stands where a cell may open, counting by twos is proved right (a doubled quote closes and
    opens again); if not, the quotes are walked one by one.
    """
    text = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    opens, closes = quotes[0::2], quotes[1::2]
    before = text[opens - 1]
    if len(opens) and opens[0] == 0:
        before[0] = _NEWLINE
    fits = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    fits[1:] |= opens[1:] - 1 == closes[: len(opens) - 1]
    if not fits.all():
        return _walk_quotes(data, quotes.tolist(), delimiter)
    if len(closes) < len(opens):
        closes = np.append(closes, len(data))
    return opens, closes


def _walk_quotes(data: bytes, quotes: list[int], delimiter: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    opens: list[int] = []
    closes: list[int] = []
    may_open = (delimiter, _NEWLINE, _RETURN)
    inside, i = False, 0
    while i < len(quotes):
        at = quotes[i]
        if inside:
            if i + 1 < len(quotes) and quotes[i + 1] == at + 1:
                i += 1  # a doubled quote stands for one
            else:
                closes.append(at)
                inside = False
        elif at == 0 or data[at - 1] in may_open:
            opens.append(at)
            inside = True
        i += 1
    if inside:
        closes.append(len(data))
    return np.array(opens, dtype=np.int64), np.array(closes, dtype=np.int64)
