"""Numbers that callers give: checked, and made plain Python numbers of."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from headrace.errors import PlanError


def whole_number(key: str, value: Any, *, of: str = "rows", least: int = 1, optional: bool = False) -> Any:
    """Return a whole number, numpy's among them, or None where that is left out; `of` says what is counted.

    >>> whole_number("batch_size", 8), whole_number("batch_size", None, optional=True)
    (8, None)
    >>> whole_number("batch_size", 0)
    Traceback (most recent call last):
    headrace.errors.PlanError: batch_size is 0; it is a whole number of rows, at least 1
    """
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PlanError(f"{key} is {value!r}; it is a whole number of {of}, at least {least}")
    return int(value)


def number(
    key: str,
    value: Any,
    *,
    what: str = "number of seconds",
    least: float = 0,
    above: float | None = None,
    optional: bool = False,
) -> Any:
    """Return a finite number, at least `least` or else more than `above`, or None where that is left out.

    >>> number("timeout_secs", 2.5, above=0), number("backoff_secs", 0)
    (2.5, 0)
    >>> number("timeout_secs", float("nan"), above=0)
    Traceback (most recent call last):
    headrace.errors.PlanError: timeout_secs is nan; it is a number of seconds, more than 0
    """
    if value is None and optional:
        return None
    fits = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not fits or not (value >= least if above is None else value > above):
        bound = f"at least {least:g}" if above is None else f"more than {above:g}"
        raise PlanError(f"{key} is {value!r}; it is a {what}, {bound}")
    return int(value) if isinstance(value, Integral) else float(value)
