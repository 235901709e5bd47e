"""From a checked pipeline to jobs, through the same calls that users of Python make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError, SpecError
from headrace.spec.handlers import make_spec_handler
from headrace.spec.reference import load_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dataset import Dataset, Job
    from headrace.spec.model import FunctionStep, InferStep, PipelineSpec, Step


def build_jobs(spec: PipelineSpec, *, file: str, overwrite: bool = False) -> list[Job]:
    """Make a job for each sink. `overwrite` goes before what the sinks say.

    Raises SpecError, naming the step, where the plan refuses it.
    """
    dataset = _named(file, "source", lambda: _read(spec.source))
    for position, step in enumerate(spec.steps):
        place = f"steps[{position}].{step.kind}"
        dataset = _named(file, place, lambda dataset=dataset, step=step: _add(dataset, step))
    return [
        _named(file, f"sink {sink.path}", lambda sink=sink: _write(dataset, sink, overwrite=overwrite))
        for sink in spec.all_sinks
    ]


def _named(file: str, place: str, make: Callable[[], Any]) -> Any:
    """Put the place in the file before what the plan says of it."""
    try:
        return make()
    except SpecError:
        raise
    except PlanError as error:
        raise SpecError(file, [f"{place}: {error}"]) from error


def _read(source: Any) -> Dataset:
    import headrace as hr

    options = source.options("type", "path")
    if options.get("size") is not None:
        options["size"] = tuple(options["size"])
    read: Callable[..., Dataset] = getattr(hr, f"read_{source.type}")
    return read(source.path, **options)


def _add(dataset: Dataset, step: Step) -> Dataset:
    """Add a step: its kind is the name of a method of Dataset, its value what the method takes."""
    value = step.value
    method: Callable[..., Dataset] = getattr(dataset, "run_inference" if step.kind == "infer" else step.kind)
    match step.kind:
        case "infer":
            return method(make_spec_handler(value.handler, value.args), **_inference_options(value))
        case "apply":
            return method(load_function(value.function))
        case "random_shuffle":
            return method(**value.options())
        case "add_column":
            return method(value.column, load_function(value.function), **_function_options(value))
        case "map" | "map_batches" | "filter" | "flat_map":
            return method(load_function(value.function), **_function_options(value))
        case _:
            return method(value)


def _inference_options(step: InferStep) -> dict[str, Any]:
    options = step.options("handler", "args")
    for name in ("preprocess", "postprocess"):
        if options.get(name):
            options[name] = [load_function(reference) for reference in options[name]]
    return options


def _function_options(step: FunctionStep) -> dict[str, Any]:
    options = step.options("function", "args", "column")
    if step.args:
        options["fn_kwargs"] = step.args
    return options


def _write(dataset: Dataset, sink: Any, *, overwrite: bool) -> Job:
    options = sink.options("type", "path")
    if overwrite:
        options["if_exists"] = "overwrite"
    write: Callable[..., Job] = getattr(dataset, f"write_{sink.type}")
    return write(sink.path, **options)
