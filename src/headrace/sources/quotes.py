"""Where quoted cells of CSV begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


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
