"""Steps of the functions that users give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dataset.inference import check_trouble
from headrace.dataset.scope import named_after, step_name
from headrace.dataset.side_input import checked_side_inputs
from headrace.errors import PlanError
from headrace.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


def function_step(
    kind: Any,
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    on_error: Any,
    output_schema: pa.Schema | None,
    version: str | None,
    name: str | None,
    *,
    retry: Any,
    timeout_secs: Any,
    side_inputs: Any,
    **more: Any,
) -> Step:
    """Return the step of a user's function, or raise PlanError for what it cannot be; `more` is its kind's own."""
    if not callable(function):
        raise PlanError(f"{kind} takes a function or a class, not {type(function).__name__}")
    if not isinstance(function, type) and callable(getattr(function, "setup", None)):
        raise PlanError(
            f"{kind} was given an object with setup(), which is called where a replica begins; pass the class, and "
            f"what its constructor takes as args= and kwargs=: {kind}({type(function).__name__}, args=[...])"
        )
    timeout_secs = check_trouble(on_error, retry, timeout_secs)
    return Step(
        name=step_name(name, named_after(kind, function)),
        kind=kind,
        function=function,
        args=tuple(args),
        kwargs=tuple((kwargs or {}).items()),
        side_inputs=checked_side_inputs(side_inputs, step=name or kind, function=function),
        on_error=on_error,
        output_schema=output_schema,
        retry=retry,
        timeout_secs=timeout_secs,
        version=version,
        **more,
    )
