"""Checks of a model stage before any data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError
from headrace.model.files import is_local
from headrace.model.handler import ModelHandler, accepts_inference_args, knows_columns
from headrace.model.keyed import KeyedModelHandler
from headrace.model.scales import check_scales
from headrace.plan.numbers import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.plan.nodes import BatchLimits, InferenceSpec

INPUT_FORMATS = ("auto", "pandas", "pyarrow")


def check_spec(spec: InferenceSpec, stage: str = "run_inference", columns: Sequence[str] | None = None) -> None:
    """Raise if a model stage cannot work as it stands, behind these `columns` (None: nothing is known of them).

    >>> from headrace.plan.nodes import BatchLimits, InferenceSpec
    >>> check_spec(InferenceSpec(handler="model.pkl"))
    Traceback (most recent call last):
    headrace.errors.PlanError: stage 'run_inference' needs a ModelHandler, and was given 'model.pkl'; ...

    Raises:
        PlanError: handler, inputs, output, limits or inference_args are wrong.
        MissingDependencyError, ModelLoadError: as the handler's own `check()` finds.
    """
    _check_handler(spec.handler, stage)
    _check_inputs(spec.inputs, stage)
    _check_output(spec, stage)
    _check_limits(spec.limits, stage)
    if isinstance(spec.handler, KeyedModelHandler):
        _check_keyed(spec, spec.handler, stage)
        return
    check_scales(spec, stage)
    given = [*spec.inference_args, *(argument for argument, _ in spec.side_inputs)]
    if given and not accepts_inference_args(spec.handler):
        raise PlanError(
            f"stage {stage!r} is given inference_args ({', '.join(given)}), but "
            f"{type(spec.handler).__name__}.run_inference takes none; add the parameter to it, or leave them out"
        )
    run_check(spec.handler, stage)
    names = _names_given(spec, columns)
    if names is not None and knows_columns(spec.handler, "check_columns"):
        _run(lambda: spec.handler.check_columns(names), spec.handler, stage, "check_columns")


def _names_given(spec: InferenceSpec, columns: Sequence[str] | None) -> list[str] | None:
    """Return the names under which a handler gets its columns; None where they are unknown, or do not reach it."""
    if isinstance(spec.inputs, str):
        return None
    given = columns if spec.inputs is None else spec.inputs
    return None if given is None else list(given)


def _check_keyed(spec: InferenceSpec, keyed: KeyedModelHandler, stage: str) -> None:
    """Check each model as if it were alone; those of a pattern are met later."""
    if keyed.pattern is not None and not is_local(keyed.pattern) and spec.version is None:
        raise PlanError(
            f"stage {stage!r}: whether the models at {keyed.pattern} are still the same when a job goes on cannot be"
            " known; pass version=, and another one when they change"
        )
    for handler in keyed.models.values():
        check_spec(replace(spec, handler=handler), stage)


def run_check(handler: ModelHandler[Any], stage: str = "run_inference") -> None:
    """Let a handler check itself.

    Raises:
        PlanError: it raised something that is no error of Headrace's.
        HeadraceError: what the handler found.
    """
    _run(handler.check, handler, stage, "check")


def _run(check: Callable[[], None], handler: ModelHandler[Any], stage: str, name: str) -> None:
    try:
        check()
    except HeadraceError:
        raise
    except Exception as error:
        raise PlanError(f"stage {stage!r}: {type(handler).__name__}.{name}() says: {error}") from error


def _check_handler(handler: Any, stage: str) -> None:
    if isinstance(handler, type) and issubclass(handler, ModelHandler):
        raise PlanError(
            f"stage {stage!r} was given the class {handler.__name__}; pass an instance: {handler.__name__}()"
        )
    if not isinstance(handler, ModelHandler):
        advice = "wrap a function in FunctionModelHandler" if callable(handler) else "subclass headrace.ModelHandler"
        if isinstance(handler, str):
            advice = f"pass one for that file, such as headrace.handlers.sklearn.SklearnModelHandler({handler!r})"
        raise PlanError(f"stage {stage!r} needs a ModelHandler, and was given {handler!r}; {advice}")
    if handler.input_format not in INPUT_FORMATS:
        raise PlanError(
            f"stage {stage!r}: {type(handler).__name__}.input_format is {handler.input_format!r}; "
            f"it may be one of {', '.join(INPUT_FORMATS)}"
        )


def _check_inputs(inputs: Any, stage: str) -> None:
    sources = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    if inputs is None:
        return
    if not sources or not all(_is_column_or_columns(source) for source in sources):
        raise PlanError(
            f"stage {stage!r}: inputs={inputs!r} must be a column name, a sequence of column names, or a mapping from "
            "argument names to those"
        )


def _is_column_or_columns(source: Any) -> bool:
    if isinstance(source, str):
        return bool(source)
    return isinstance(source, (list, tuple)) and bool(source) and all(isinstance(n, str) and n for n in source)


def _check_output(spec: InferenceSpec, stage: str) -> None:
    output = spec.output
    columns = list(output.values()) if isinstance(output, Mapping) else [output]
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise PlanError(
            f"stage {stage!r}: output={output!r} must be a column name, or a mapping from keys of dict answers to "
            "column names"
        )
    if spec.model_id_column is not None:
        columns.append(spec.model_id_column)
    for column in columns:
        if columns.count(column) > 1:
            raise PlanError(
                f"stage {stage!r} would write column {column!r} twice; give each key of output= and model_id_column= a "
                "name of its own"
            )


def _check_limits(limits: BatchLimits, stage: str) -> None:
    where = f"stage {stage!r}: "
    whole_number(f"{where}min_batch_size", limits.min_batch_size)
    whole_number(f"{where}max_batch_size", limits.max_batch_size, optional=True)
    whole_number(f"{where}sort_window_rows", limits.sort_window_rows)
    number(f"{where}max_batch_duration_secs", limits.max_batch_duration_secs, optional=True)
    number(f"{where}max_batch_weight", limits.max_batch_weight, what="weight", above=0, optional=True)
    number(f"{where}target_latency_secs", limits.target_latency_secs, above=0, optional=True)
    if limits.max_batch_size is not None and limits.min_batch_size > limits.max_batch_size:
        raise PlanError(
            f"{where}min_batch_size={limits.min_batch_size} is larger than max_batch_size={limits.max_batch_size}"
        )
