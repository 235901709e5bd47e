"""Composing `run_inference`: CPU steps before and after the model, the model node between."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.dataset.chain import Chain, functions_of
from headrace.dataset.hints import check_device, checked_hints
from headrace.dataset.hosting import hosting
from headrace.dataset.scope import step_name
from headrace.dataset.side_input import checked_side_inputs, has_parameter
from headrace.errors import PlanError
from headrace.model.cache import PredictionCache
from headrace.model.gpu_budget import check_gpu_budget
from headrace.model.handler import ModelHandler
from headrace.model.inputs import columns_of
from headrace.model.keyed import KeyedModelHandler, MemoryBudget
from headrace.model.preparing import Preparing
from headrace.plan.columns import Drop
from headrace.plan.nodes import InferenceSpec, MapBatches, Node, RunInference
from headrace.plan.numbers import number
from headrace.plan.retry import Retry
from headrace.plan.steps import Step
from headrace.records.private import INPUT, KEY, PREPARED, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.plan.nodes import BatchLimits


def build_inference(
    upstream: Node,
    handler: Any,
    *,
    inputs: Any,
    output: str | Mapping[str, str],
    model_id_column: str | None,
    inference_args: Mapping[str, Any],
    side_inputs: Any = None,
    preprocess: Any,
    postprocess: Any,
    limits: BatchLimits,
    weigh: Callable[..., Any] | None,
    concurrency: int | None,
    isolation: Any,
    on_error: Any,
    retry: Any,
    timeout_secs: Any,
    hints: Mapping[str, Any],
    durability: Any,
    cache: Any,
    version: str | None,
    name: str | None,
    memory_budget: Any = None,
    model_copies: Any = None,
    large_model: Any = False,
    idle_timeout_secs: Any = None,
    updates: Any = None,
) -> Node:
    """Return the node at the end of the composition; `weigh` fills the column that `limits` names."""
    label = step_name(name, "run_inference")
    keyed = handler if isinstance(handler, KeyedModelHandler) else None
    memory_budget = _models_budget(memory_budget, keyed, isolation, hints, changing=updates is not None)
    timeout_secs = check_trouble(on_error, retry, timeout_secs)
    hints = checked_hints(**hints)
    if hints.get("num_gpus"):
        check_device(handler, f"num_gpus={hints['num_gpus']:g}")
    _check_memory(durability, cache)
    hosted = hosting(
        isolation=isolation,
        concurrency=concurrency,
        model_copies=model_copies,
        large_model=large_model,
        idle_timeout_secs=idle_timeout_secs,
        gives_back=timeout_secs is not None or memory_budget is not None,
        several=keyed is not None,
        changing=updates is not None,
        num_gpus=hints.get("num_gpus"),
        at_once=handler.batches_at_once() if isinstance(handler, ModelHandler) else 1,
    )
    before, after = functions_of("preprocess", preprocess), functions_of("postprocess", postprocess)
    name_of = [] if keyed is None or not callable(keyed.key) else [keyed.key]
    of_model, of_functions = _side_inputs(
        side_inputs, inference_args, label, functions=[*before, *after, *name_of, *([] if weigh is None else [weigh])]
    )
    around = partial(_add_column, on_error=on_error, side_inputs=of_functions)
    node = upstream
    if before:
        node = around(node, INPUT, before, inputs if isinstance(inputs, str) else None, suffixed(label, "/preprocess"))
        inputs = INPUT
    if inputs is not None and not isinstance(inputs, (str, dict)):
        inputs = tuple(inputs)
    if weigh is not None:
        column = inputs if isinstance(inputs, str) else None
        node = around(node, WEIGHT, [weigh], column, suffixed(label, "/weigh"), advisory=True)
    if name_of:
        node = around(node, KEY, name_of, None, suffixed(label, "/key"))
    # A newer version may have another tokenizer: where the model changes each makes its inputs ready itself.
    changing = updates is not None
    prepared = None if changing else _prepare(node, handler, inputs, suffixed(label, "/prepare"), on_error)
    node = RunInference(
        name=label,
        upstream=prepared or node,
        spec=InferenceSpec(
            handler=handler,
            inputs=inputs,
            prepared=prepared is not None,
            output=output if isinstance(output, str) else dict(output),
            model_id_column=model_id_column,
            inference_args=dict(inference_args),
            side_inputs=of_model,
            limits=limits,
            key_column=None if keyed is None else keyed.key if isinstance(keyed.key, str) else KEY,
            retry=retry,
            timeout_secs=timeout_secs,
            version=version,
        ),
        concurrency=hosted.concurrency,
        isolation=hosted.isolation,
        copies=hosted.copies,
        idle_timeout_secs=hosted.idle_timeout_secs,
        on_error=on_error,
        hints=hints,
        durability=durability,
        cache=cache,
        memory_budget=memory_budget,
        updates=updates,
    )
    if name_of:
        node = _drop(node, KEY, suffixed(label, "/drop_key"))
    if prepared is not None:
        node = _drop(node, PREPARED, suffixed(label, "/drop_prepared"), advisory=True)
    if before:
        node = _drop(node, INPUT, suffixed(label, "/drop_input"))
    if weigh is not None:
        node = _drop(node, WEIGHT, suffixed(label, "/drop_weight"), advisory=True)
    if after:
        if not isinstance(output, str):
            raise PlanError("postprocess= works on one output column; with output={...} use map() behind it")
        node = around(node, output, after, output, suffixed(label, "/postprocess"))
    return node


_Sides: TypeAlias = "tuple[tuple[str, Any], ...]"


def _side_inputs(
    given: Any, inference_args: Mapping[str, Any], label: str, *, functions: Sequence[Callable[..., Any]]
) -> tuple[_Sides, _Sides]:
    """Return which side inputs go to the model, and which to functions around it: those that these have parameters for.

    Not to both, since a handler may refuse an argument that it does not know.
    """
    step = label.rstrip("\0")
    checked = checked_side_inputs(given, step=step, function=None)
    of_functions = tuple(side for side in checked if any(has_parameter(function, side[0]) for function in functions))
    of_model = tuple(side for side in checked if side not in of_functions)
    for argument, _ in of_model:
        if argument in inference_args:
            raise PlanError(f"{step}: {argument!r} is among inference_args and among side_inputs; rename one of them")
    return of_model, of_functions


def check_trouble(on_error: Any, retry: Any, timeout_secs: Any) -> float | None:
    """Raise PlanError where a step is not told clearly what to do about rows that fail, now and then, or hang.

    Returns `timeout_secs` as a plain number.
    """
    if on_error not in (None, "fail", "dead_letter", "null"):
        raise PlanError(f"on_error is {on_error!r}; use 'fail', 'dead_letter' or 'null'")
    if retry is not None and not isinstance(retry, Retry):
        raise PlanError(f"retry is {retry!r}; pass headrace.Retry(attempts=3) or the like")
    timeout: float | None = number("timeout_secs", timeout_secs, above=0, optional=True)
    return timeout


def _models_budget(
    given: Any, keyed: KeyedModelHandler | None, isolation: Any, hints: Mapping[str, Any], *, changing: bool
) -> MemoryBudget | None:
    if given is None:
        return None
    if given != "auto" and not isinstance(given, MemoryBudget):
        raise PlanError(f"memory_budget is {given!r}; pass headrace.MemoryBudget(cpu='2GB'), or 'auto'")
    if not changing and (keyed is None or keyed.mode != "route"):
        raise PlanError(
            "memory_budget= is for models that take turns: those that a KeyedModelHandler routes rows to, or versions"
            " of one (watch=, updates=)"
        )
    budget = MemoryBudget(gpu="auto" if keyed else None) if given == "auto" else given
    check_gpu_budget(budget.gpu)
    if budget.gpu is not None and keyed is None:
        raise PlanError(
            "memory_budget: gpu= is for the models of a KeyedModelHandler; whether two versions of one fit on a GPU is"
            " found out when the newer one loads"
        )
    for handler in keyed.models.values() if keyed is not None and budget.gpu not in (None, "auto") else ():
        check_device(handler, "memory_budget= with gpu=")
    if isolation == "thread":
        raise PlanError("under a memory_budget each model has a process of its own; leave isolation='thread' out")
    if hints.get("min_ram") is not None:
        raise PlanError("memory_budget= says how much memory the models have together; leave min_ram= out")
    return budget


def _check_memory(durability: Any, cache: Any) -> None:
    if durability not in ("range", "row"):
        raise PlanError(f"durability is {durability!r}; answers are made durable by 'range' or by 'row'")
    if cache is not None and not isinstance(cache, PredictionCache):
        raise PlanError(f"cache is {cache!r}; pass headrace.PredictionCache('a/folder')")


def _add_column(
    node: Node,
    column: str,
    functions: Sequence[Callable[..., Any]],
    of: str | None,
    name: str,
    *,
    on_error: Any,
    side_inputs: _Sides,
    advisory: bool = False,
) -> Node:
    """Return a step that fills a column with what functions return of another, or of the whole row."""
    taken = tuple(side for side in side_inputs if any(has_parameter(function, side[0]) for function in functions))
    step = Step(
        name=name,
        kind="add_column",
        function=Chain(functions, of, [argument for argument, _ in taken]),
        kwargs=(("column", column),),
        side_inputs=taken,
        on_error=on_error,
        reads=None if of is None else (of,),
        advisory=advisory,
    )
    return MapBatches(upstream=node, step=step, isolation="auto")


def _prepare(node: Node, handler: Any, inputs: Any, name: str, on_error: Any) -> Node | None:
    """Return the step that makes the handler's inputs ready; None where nothing does. It is the handler's: see there.

    Settings of the handler decide what it does, so that the model counts for both in the job's identity.
    """
    preparer = handler.preparer() if isinstance(handler, ModelHandler) else None
    if preparer is None:
        return None
    if inputs is None and (default := handler.default_inputs()) is not None:
        inputs = default if isinstance(default, str) else tuple(default)
    step = Step(
        name=name,
        kind="prepare",
        function=Preparing,
        args=(preparer, inputs, handler.input_format),
        kwargs=(("column", PREPARED),),
        on_error=on_error,
        reads=columns_of(inputs),
        native=getattr(preparer, "native", False),
        advisory=True,
    )
    return MapBatches(upstream=node, step=step, isolation="auto")


def _drop(node: Node, column: str, name: str, *, advisory: bool = False) -> Node:
    return MapBatches(upstream=node, step=Step(name=name, kind="columns", function=Drop((column,)), advisory=advisory))


def suffixed(label: str, suffix: str) -> str:
    """Name a part of the composition after the whole, so that automatic names stay automatic."""
    from headrace.plan.graph import AUTOMATIC

    if label.endswith(AUTOMATIC):
        return label.removesuffix(AUTOMATIC) + suffix + AUTOMATIC
    return label + suffix
