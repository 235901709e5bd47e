"""Side inputs: a dataset that is whole, and perhaps made into something, before the steps that use it begin."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.plan.nodes import Broadcast


class SideInput:
    """What `Dataset.broadcast` and `build_index` return, to be named in `side_inputs=` of other datasets' steps.

    >>> import headrace as hr
    >>> prices = hr.from_items([{"fruit": "fig", "price": 3}]).broadcast()
    >>> hr.range(1).map(lambda row, prices: prices.to_pylist()[row["id"]], side_inputs={"prices": prices}).take(1)
    [{'fruit': 'fig', 'price': 3}]
    """

    def __init__(self, node: Broadcast) -> None:
        self.node = node

    def __reduce__(self) -> Any:
        raise PlanError(
            f"{self!r} was met inside a function or its arguments, where it is nothing but a plan; pass it as"
            " side_inputs={'name': …}, and the function gets what it stands for as the argument of that name"
        )

    def __repr__(self) -> str:
        name = self.node.name.rstrip("\0")
        return f"<SideInput {name}; side_inputs={{'name': …}} hands it to a step>"


def checked_side_inputs(given: Any, *, step: str, function: Callable[..., Any] | None) -> tuple[tuple[str, Any], ...]:
    """Return the nodes of side inputs by argument of the function, or raise PlanError for what they cannot be.

    `function=None` is one that takes any.
    """
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise PlanError(
            f"{step}: side_inputs is {type(given).__name__}; pass a dict, as in {{'index': ds.broadcast()}}"
        )
    for argument, side in given.items():
        if not isinstance(side, SideInput):
            advice = "call broadcast() of it" if hasattr(side, "broadcast") else "pass what ds.broadcast() returns"
            raise PlanError(f"{step}: side input {argument!r} is a {type(side).__name__}; {advice}")
        if function is not None and not _takes(function, argument):
            raise PlanError(
                f"{step}: side input {argument!r} goes to the function by that name, and it has no such parameter;"
                f" define it as f(row, {argument})"
            )
    return tuple((argument, side.node) for argument, side in given.items())


def has_parameter(function: Callable[..., Any], argument: str) -> bool:
    """Say whether a function has a parameter of that name, behind its first, that can be given by name."""
    parameters = list((_parameters(function) or {}).values())
    found = next((p for p in parameters[1:] if p.name == argument), None)
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = _parameters(function)
    if parameters is None:  # written in C; the call will tell
        return True
    return has_parameter(function, argument) or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    called = getattr(function, "__call__", None) if isinstance(function, type) else function  # noqa: B004
    try:
        return inspect.signature(called).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
