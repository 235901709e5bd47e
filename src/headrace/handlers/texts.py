"""Texts as tokenizers take them."""

from __future__ import annotations

from headrace.errors import RowError


def surrogate_error(text: str) -> RowError | None:
    r"""Return what is wrong with a text that is no Unicode, since half of a pair of code units is missing; else None.

    Python holds such texts, and tokenizers refuse them with errors about something else.

    >>> str(surrogate_error("ab\ud800"))[:53]
    "the text has a lone surrogate ('\\ud800', character 2)"
    >>> surrogate_error("ab") is None
    True
    """
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return RowError(
            f"the text has a lone surrogate ({text[error.start]!a}, character {error.start}), which no encoding holds; "
            "mend it where it comes from, or with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
        )
    return None
