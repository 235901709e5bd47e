"""Composite steps: names made inside `apply(fn)` begin with the composite's own."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from headrace.plan.graph import AUTOMATIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_prefix: ContextVar[str] = ContextVar("headrace_composite", default="")


@contextmanager
def composite(name: str) -> Iterator[None]:
    """Put `name/` before the names of steps made inside."""
    token = _prefix.set(f"{_prefix.get()}{name}/")
    try:
        yield
    finally:
        _prefix.reset(token)


def step_name(given: str | None, automatic: str) -> str:
    """Return a step's name: as given, or an automatic one that the plan may number."""
    return f"{_prefix.get()}{given}" if given is not None else f"{_prefix.get()}{automatic}{AUTOMATIC}"


def named_after(kind: str, function: Callable[..., Any]) -> str:
    """Name a step after its function, as in "map(clean)"; lambdas have no name worth showing."""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{kind}({name})" if name.isidentifier() else kind
