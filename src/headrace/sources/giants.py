"""Finding the end of one record that is longer than a piece, chunk by chunk."""

from __future__ import annotations

import numpy as np

from headrace.sources.quotes import quoted_ranges

_NEWLINE = b"\n"
_QUOTE = b'"'


class LineEnd:
    """Looks for the end of a line."""

    def find(self, chunk: bytes) -> int:
        """Return the place in the next chunk after the record's end, or 0 where it goes on."""
        return chunk.find(_NEWLINE) + 1


class CsvRecordEnd:
    r"""Looks for the end of a CSV record, of which a beginning without an end is known.

    >>> seeker = CsvRecordEnd(b'1,"a\nb', delimiter=44)
    >>> seeker.find(b'c""\nd'), seeker.find(b'"\n2,3\n')
    (0, 2)
    """

    def __init__(self, head: bytes, *, delimiter: int) -> None:
        self._delimiter = delimiter
        self._before = _NEWLINE
        """What stands before the next chunk, or a quote where that begins inside a quoted cell."""
        self._held = b""
        """Quotes at the end of the last chunk: whether they close the cell depends on what follows."""
        self.find(head)

    def find(self, chunk: bytes) -> int:
        """Return the place in the next chunk after the record's end, or 0 where it goes on."""
        held, body = self._held, (self._held + chunk).rstrip(_QUOTE)
        self._held = (held + chunk)[len(body) :]
        if not body:
            return 0
        text = self._before + body
        opens, closes = quoted_ranges(text, self._delimiter)
        end = text.find(_NEWLINE, 1)
        while end > 0:
            cell = int(np.searchsorted(opens, end)) - 1  # the last quoted cell that opens before the line break
            if cell < 0 or closes[cell] < end:
                return end - len(held)
            end = text.find(_NEWLINE, int(closes[cell]))
        self._before = _QUOTE if len(closes) and closes[-1] == len(text) else text[-1:]
        return 0
