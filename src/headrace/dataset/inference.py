"""Composing `run_inference`: CPU steps before and after the model, the model node between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dataset.scope import step_name
from headrace.errors import PlanError, RowError
from headrace.model.cache import PredictionCache
from headrace.plan.columns import Drop
from headrace.plan.nodes import BatchLimits, InferenceSpec, MapBatches, Node, RunInference
from headrace.plan.retry import Retry
from headrace.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

INPUT_COLUMN = "__input"
"""Column that carries what `preprocess` made, from the CPU step to the model."""
WEIGHT_COLUMN = "__weight"
"""Column that carries what `length_fn` or `weight_fn` returned."""


class Chain:
    """Functions applied one after another to one value: of a whole row, or of one column."""

    def __init__(self, functions: Sequence[Callable[..., Any]], column: str | None) -> None:
        self.functions, self.column = tuple(functions), column

    def __call__(self, row: dict[str, Any]) -> Any:
        """Return the value that the last function returns."""
        value: Any = row if self.column is None else row[self.column]
        for function in self.functions:
            value = function(value)
            if isinstance(value, RowError):
                raise value
        return value


def build_inference(
    upstream: Node,
    handler: Any,
    *,
    inputs: Any,
    output: str | Mapping[str, str],
    model_id_column: str | None,
    inference_args: Mapping[str, Any],
    preprocess: Any,
    postprocess: Any,
    batch_size: int | None,
    min_batch_size: int | None,
    max_batch_size: int | None,
    max_batch_duration_secs: float | None,
    max_batch_weight: float | None,
    length_fn: Any,
    weight_fn: Any,
    sort_window_rows: int,
    target_latency_secs: float | None,
    concurrency: int,
    isolation: Any,
    on_error: Any,
    retry: Any,
    timeout_secs: Any,
    hints: Mapping[str, Any],
    durability: Any,
    cache: Any,
    version: str | None,
    name: str | None,
) -> Node:
    """Return the node at the end of the composition."""
    label = step_name(name, "run_inference")
    if isolation not in ("auto", "thread", "process"):
        raise PlanError(f"isolation is {isolation!r}; a model runs in a 'thread' or in a 'process', or use 'auto'")
    if concurrency < 1:
        raise PlanError(f"concurrency is {concurrency}; it is a number of batches in flight, at least 1")
    check_patience(retry, timeout_secs)
    _check_memory(durability, cache)
    if isolation == "auto":
        isolation = "thread" if timeout_secs is None else "process"  # a thread that hangs cannot be ended
    before, after = _functions("preprocess", preprocess), _functions("postprocess", postprocess)
    node = upstream
    if before:
        chain = Chain(before, inputs if isinstance(inputs, str) else None)
        node = _add_column(node, INPUT_COLUMN, chain, _suffixed(label, "/preprocess"), on_error)
        inputs = INPUT_COLUMN
    if inputs is not None and not isinstance(inputs, (str, dict)):
        inputs = tuple(inputs)
    weight = _weight_of(length_fn, weight_fn)
    if callable(weight):
        chain = Chain([weight], inputs if isinstance(inputs, str) else None)
        node = _add_column(node, WEIGHT_COLUMN, chain, _suffixed(label, "/weigh"), on_error, advisory=True)
    node = RunInference(
        name=label,
        upstream=node,
        spec=InferenceSpec(
            handler=handler,
            inputs=inputs,
            output=output if isinstance(output, str) else dict(output),
            model_id_column=model_id_column,
            inference_args=dict(inference_args),
            limits=BatchLimits(
                **_sizes(batch_size, min_batch_size, max_batch_size),
                max_batch_duration_secs=_at_least(0, "max_batch_duration_secs", max_batch_duration_secs),
                max_batch_weight=_at_least(0, "max_batch_weight", max_batch_weight),
                weight_column=WEIGHT_COLUMN if callable(weight) else weight,
                padded=length_fn is not None,
                sort_window_rows=_at_least(1, "sort_window_rows", sort_window_rows),
                target_latency_secs=_at_least(0, "target_latency_secs", target_latency_secs),
            ),
            retry=retry,
            timeout_secs=timeout_secs,
            version=version,
        ),
        concurrency=concurrency,
        isolation=isolation,
        on_error=on_error,
        hints={key: value for key, value in hints.items() if value is not None},
        durability=durability,
        cache=cache,
    )
    if before:
        step = Step(name=_suffixed(label, "/drop_input"), kind="columns", function=Drop((INPUT_COLUMN,)))
        node = MapBatches(upstream=node, step=step)
    if callable(weight):
        drop = Drop((WEIGHT_COLUMN,))
        step = Step(name=_suffixed(label, "/drop_weight"), kind="columns", function=drop, advisory=True)
        node = MapBatches(upstream=node, step=step)
    if after:
        if not isinstance(output, str):
            raise PlanError("postprocess= works on one output column; with output={...} use map() behind it")
        node = _add_column(node, output, Chain(after, output), _suffixed(label, "/postprocess"), on_error)
    return node


def check_patience(retry: Any, timeout_secs: Any) -> None:
    """Raise PlanError where they are no `Retry` and no number of seconds."""
    if retry is not None and not isinstance(retry, Retry):
        raise PlanError(f"retry is {retry!r}; pass headrace.Retry(attempts=3) or the like")
    if timeout_secs is not None and not (isinstance(timeout_secs, (int, float)) and timeout_secs > 0):
        raise PlanError(f"timeout_secs is {timeout_secs!r}; it is a number of seconds, more than 0")


def _check_memory(durability: Any, cache: Any) -> None:
    if durability not in ("range", "row"):
        raise PlanError(f"durability is {durability!r}; answers are made durable by 'range' or by 'row'")
    if cache is not None and not isinstance(cache, PredictionCache):
        raise PlanError(f"cache is {cache!r}; pass headrace.PredictionCache('a/folder')")


def _sizes(batch_size: int | None, min_batch_size: int | None, max_batch_size: int | None) -> dict[str, Any]:
    if batch_size is not None:
        if min_batch_size is not None or max_batch_size is not None:
            raise PlanError("batch_size fixes the size; leave min_batch_size and max_batch_size out, or batch_size")
        min_batch_size = max_batch_size = batch_size
    for key, value in (("min_batch_size", min_batch_size), ("max_batch_size", max_batch_size)):
        if value is not None and value < 1:
            raise PlanError(f"{key} is {value}; it is a number of rows, at least 1")
    if min_batch_size is not None and max_batch_size is not None and min_batch_size > max_batch_size:
        raise PlanError(f"min_batch_size {min_batch_size} is more than max_batch_size {max_batch_size}")
    return {"min_batch_size": min_batch_size or 1, "max_batch_size": max_batch_size}


def _at_least(lowest: int, key: str, value: Any) -> Any:
    if value is not None and not (isinstance(value, (int, float)) and value >= lowest):
        raise PlanError(f"{key} is {value!r}; it is a number{' of seconds' * key.endswith('_secs')}, at least {lowest}")
    return value


def _weight_of(length_fn: Any, weight_fn: Any) -> Any:
    """Return the one of the two that is given, a column's name or a function."""
    if length_fn is not None and weight_fn is not None:
        raise PlanError("length_fn is for rows that are padded, weight_fn for weights that add up; pass one of them")
    for key, value in (("length_fn", length_fn), ("weight_fn", weight_fn)):
        if value is not None:
            if not (isinstance(value, str) or callable(value)):
                raise PlanError(f"{key} is {value!r}; pass the name of a column, or a function that returns a number")
            return value
    return None


def _add_column(node: Node, column: str, function: Chain, name: str, on_error: Any, *, advisory: bool = False) -> Node:
    step = Step(
        name=name,
        kind="add_column",
        function=function,
        kwargs=(("column", column),),
        on_error=on_error,
        advisory=advisory,
    )
    return MapBatches(upstream=node, step=step, isolation="auto")


def _functions(what: str, given: Any) -> list[Callable[..., Any]]:
    if given is None:
        return []
    functions = [given] if callable(given) else list(given)
    for function in functions:
        if not callable(function):
            raise PlanError(f"{what} takes a function or a list of functions, not {type(function).__name__}")
    return functions


def _suffixed(label: str, suffix: str) -> str:
    """Name a part of the composition after the whole, so that automatic names stay automatic."""
    from headrace.plan.graph import AUTOMATIC

    if label.endswith(AUTOMATIC):
        return label.removesuffix(AUTOMATIC) + suffix + AUTOMATIC
    return label + suffix
