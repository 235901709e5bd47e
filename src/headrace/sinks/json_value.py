"""One Python value as JSON text, exactly or not at all, under the rules of `headrace.sinks.json_text`."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

import numpy as np

from headrace.records.infinities import INFINITY


class NoJsonError(Exception):
    """A value, or what is in it, is nothing that JSON has; the text says what it is, and what to do."""


def text_of(value: Any) -> str:
    """Return the JSON text of a value.

    >>> text_of({1: [None, 2**70, float("nan"), decimal.Decimal("1.10")]})
    '{"1": [null, 1180591620717411303424, null, 1.10]}'

    Raises:
        NoJsonError: there is none.
    """
    try:
        return _text(value)
    except UnicodeEncodeError as error:
        raise NoJsonError(
            "text with half a character (a lone surrogate); mend it with text.encode('utf-8', 'replace').decode()"
        ) from error
    except RecursionError as error:
        raise NoJsonError("nesting without an end; leave the column out with drop()") from error
    except ValueError as error:  # Python turns no more than a few thousand digits into text
        raise NoJsonError(f"a number of thousands of digits; turn it into text in a map step ({error})") from error


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value.encode()
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, (float, decimal.Decimal)):
        return _number(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return '{"base64": "' + base64.b64encode(value).decode("ascii") + '"}'
    if isinstance(value, datetime.timedelta):
        return f"{decimal.Decimal(value // datetime.timedelta(microseconds=1)).scaleb(-6)}"
    if isinstance(value, datetime.datetime):
        return f'"{_moment(value)}"' if value == value else "null"  # NaT is a datetime
    if isinstance(value, (datetime.date, datetime.time)):
        return f'"{value.isoformat()}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return _object(value)
    if isinstance(value, np.datetime64):
        return "null" if np.isnat(value) else f'"{value}"'
    plain = value.tolist() if hasattr(value, "tolist") else value  # numpy's and torch's arrays and numbers
    if isinstance(plain, type(value)):
        raise NoJsonError(
            f"Python objects ({type(value).__name__}), which no file can hold; turn them into numbers, text, bytes, "
            "lists or dicts in a map step, or leave the column out with drop()"
        )
    return _text(plain)


def _moment(value: datetime.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _number(value: float | decimal.Decimal) -> str:
    if math.isnan(value):
        return "null"
    if math.isinf(value):
        return INFINITY if value > 0 else f"-{INFINITY}"
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _object(value: dict[Any, Any]) -> str:
    keys = {key: key if isinstance(key, str) else _text(key).strip('"') for key in value}
    if len(set(keys.values())) < len(keys):
        raise NoJsonError("keys that are the same as text; make them differ in a map step")
    return "{" + ", ".join(f"{_text(keys[key])}: {_text(item)}" for key, item in value.items()) + "}"
