"""Streams of bytes cut into pieces of whole records, also where quoted cells hold line breaks."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.sources.storage import ByteStream

PIECE_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = 1024 * 1024 * 1024
"""A record beyond this is taken for damage: a quote that never closes, or no text file at all."""

BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of whole records."""

    data: bytes
    offset: int
    """Where the piece begins in the stream."""
    torn: bool = False
    """Whether the stream ended without ending the last record."""


def pieces(
    stream: ByteStream, record_end: Callable[[bytes], int], *, label: str, piece_bytes: int = PIECE_BYTES
) -> Iterator[Piece]:
    """Yield the stream in pieces of about `piece_bytes` that end where records end; a long record makes a long piece.

    `record_end(data)` returns the end of the last whole record in bytes that begin with a record, or 0.
    """
    carry, offset, want = b"", 0, piece_bytes
    while True:
        more = stream.read(want)
        if not more:
            if carry:
                yield Piece(carry, offset, torn=True)
            return
        data = carry + more if carry else more
        end = record_end(data)
        if end == 0:
            if len(data) > MAX_RECORD_BYTES:
                raise SourceError(
                    f"{label}: the record that begins at byte {offset:,} is longer than {MAX_RECORD_BYTES:,} bytes; "
                    "look for a quote that is never closed, or another format"
                )
            carry, want = data, len(data)  # doubling, so that a giant is not scanned over and over
            continue
        yield Piece(data if end == len(data) else data[:end], offset)
        carry, offset, want = data[end:], offset + end, piece_bytes


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
        i = bisect_left(opens, end - 1) - 1  # the last quoted cell that begins before the line break
        if i < 0 or closes[i] < end - 1:
            return end
        end = data.rfind(b"\n", 0, opens[i]) + 1
    return 0


def first_record_end(data: bytes, delimiter: int = 44) -> int:
    """Return the place after the first record (the header, say); the whole length where nothing ends it."""
    ranges: tuple[list[int], list[int]] | None = None
    at = 0
    while True:
        end = data.find(b"\n", at)
        if end < 0:
            return len(data)
        if data.find(b'"', 0, end) < 0:
            return end + 1
        opens, closes = ranges = ranges or quoted_ranges(data, delimiter)
        i = bisect_left(opens, end) - 1
        if i < 0 or closes[i] < end:
            return end + 1
        at = min(closes[i], len(data))


def cut_unclosed(data: bytes, delimiter: int = 44) -> tuple[bytes, bytes]:
    r"""Cut off a last record whose quoted cell is still open at the end.

    >>> cut_unclosed(b'1,2\n3,"x\n4,5\n')
    (b'1,2\n', b'3,"x\n4,5\n')
    """
    if _QUOTE not in data:
        return data, b""
    opens, closes = quoted_ranges(data, delimiter)
    if not closes or closes[-1] < len(data):
        return data, b""
    begin = csv_record_end(data[: opens[-1]], delimiter)
    return data[:begin], data[begin:]


def quoted_ranges(data: bytes, delimiter: int) -> tuple[list[int], list[int]]:
    """Return where quoted cells open and close; a cell left open closes at `len(data)`.

    A quote opens a cell only at the cell's very beginning; elsewhere in an unquoted cell it is a character like others.
    If every second quote stands where a cell may open, counting by twos is proved right (a doubled quote closes and
    opens again); if not, the quotes are walked one by one.
    """
    text = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    opens, closes = quotes[0::2], quotes[1::2]
    before = np.where(opens > 0, text[opens - 1], _NEWLINE)
    fits = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    fits[1:] |= opens[1:] - 1 == closes[: len(opens) - 1]
    if not fits.all():
        return _walk_quotes(data, quotes.tolist(), delimiter)
    if len(closes) < len(opens):
        closes = np.append(closes, len(data))
    return opens.tolist(), closes.tolist()


def _walk_quotes(data: bytes, quotes: list[int], delimiter: int) -> tuple[list[int], list[int]]:
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
    return opens, closes
