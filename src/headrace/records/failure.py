"""Failed rows on their way to the dead letters."""

from __future__ import annotations

import base64
import json
import math
import traceback as tb
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.masking import masked

MAX_TRACEBACK_CHARS = 8_000

MAX_DEPTH = 50
"""Levels of nesting that are written as such; what lies deeper is shown as Python shows it."""


MAX_BITS = 10_000
"""Of integers that are written in decimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """One row that a stage could not process, as it will stand in the dead letters."""

    stage: str
    ordinal: int
    """The row's number within its split; `file` and `position` are where a person finds it."""
    row: str
    """The row as it entered the stage, as JSON (bytes in base64)."""
    error_type: str
    message: str
    traceback: str = ""
    attempt: int = 1
    """How often the row was tried, alone or with the batch that failed whole."""
    file: str | None = None
    position: int | None = None
    """The row's number within the file, from 0."""
    model_id: str | None = None
    siblings: bool = False
    """Other rows made of the same input row went on, so that the input row cannot be run again for this one alone."""
    elsewhere: bool = False
    """Its letter is in the dead letters of another output of the run; this one lacks the row all the same."""

    def __post_init__(self) -> None:
        for name in ("message", "traceback", "file"):
            if (shown := getattr(self, name)) and "://" in shown:
                object.__setattr__(self, name, masked(shown))

    @classmethod
    def of(
        cls,
        error: BaseException,
        *,
        stage: str,
        ordinal: int,
        row: Any,
        attempt: int = 1,
        file: str | None = None,
        position: int | None = None,
        model_id: str | None = None,
        siblings: bool = False,
    ) -> RowFailure:
        """Make a failure from an exception.

        >>> RowFailure.of(ValueError("too long"), stage="map_1", ordinal=3, row={"id": 3}).message
        'too long'
        """
        text = _traceback_of(error) if error.__traceback__ is not None else ""
        return cls(
            stage=stage,
            ordinal=ordinal,
            row=row_as_json(row),
            error_type=type(error).__name__,
            message=text_of(error),
            traceback=text[-MAX_TRACEBACK_CHARS:],
            attempt=attempt,
            file=file,
            position=position,
            model_id=model_id,
            siblings=siblings,
        )


def _traceback_of(error: BaseException) -> str:
    """Return the traceback as Python shows it, but for carets: each line would be compiled for them, every time."""
    shown = tb.TracebackException.from_exception(error)
    parts: list[tb.TracebackException | None] = [shown]
    while parts:
        if (part := parts.pop()) is not None:
            for frame in part.stack:
                frame.colno = None
            parts += [part.__cause__, part.__context__, *(part.exceptions or ())]
    return "".join(shown.format())


def row_as_json(row: Any) -> str:
    r"""Encode a row so that a person can read it and a program can read it back; never fails, whatever is in the row.

    Bytes become `{"base64": "…"}`, numbers that JSON lacks `{"float": "nan"}`, keys text, arrays lists, and other
    objects their `repr`.

    >>> row_as_json({"id": 1, "scan": b"\x00", "score": float("nan")})
    '{"id": 1, "scan": {"base64": "AA=="}, "score": {"float": "nan"}}'
    """
    try:
        return json.dumps(row, allow_nan=False, default=_encode)
    except Exception:
        return json.dumps(_plain(row, depth=0))


def _encode(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value)


def _plain(value: Any, *, depth: int) -> Any:
    """Return what JSON can hold of a value that it cannot hold as it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return hex(value)  # Python turns no more than a few thousand decimal digits into text
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    try:
        if depth >= MAX_DEPTH:
            return repr(value)
        if isinstance(value, dict):
            return {str(key): _plain(item, depth=depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_plain(item, depth=depth + 1) for item in value]
        return _plain(_encode(value), depth=depth + 1)
    except Exception:
        return f"<{type(value).__name__}>"


def told(error: BaseException) -> str:
    """Return the kind and the text of an error in one line.

    >>> told(ValueError("too long")), told(ValueError())
    ('ValueError: too long', 'ValueError')
    """
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ")


def text_of(error: BaseException) -> str:
    """Return the text of an error; users' errors may fail to give one."""
    try:
        return str(error)
    except Exception as another:
        return f"<its text cannot be had: {type(another).__name__}>"
