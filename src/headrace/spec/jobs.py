"""From a checked pipeline to jobs, through the same calls that users of Python make."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError, SpecError
from headrace.model.cache import PredictionCache
from headrace.model.keyed import MemoryBudget
from headrace.model.updates import WatchFilePattern
from headrace.plan.retry import Retry
from headrace.spec.keyed import make_step_handler
from headrace.spec.reference import load_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.dataset import Dataset, Job
    from headrace.dataset.side_input import SideInput
    from headrace.spec.model import InferStep, PipelineSpec, SideInputSpec, Step


def build_jobs(spec: PipelineSpec, *, file: str, overwrite: bool = False) -> list[Job]:
    """Make a job for each sink. `overwrite` goes before what the sinks say.

    Raises SpecError, naming the step, where the plan refuses it.
    """
    sides: dict[str, SideInput] = {}
    for name, side in spec.side_inputs.items():
        place = f"side_inputs.{name}"
        dataset = _dataset(side, sides, file=file, place=f"{place}.")
        with _placed(file, place):
            sides[name] = _side_input(dataset, side, name)
    dataset = _dataset(spec, sides, file=file)
    jobs = []
    for sink in spec.all_sinks:
        with _placed(file, f"sink {sink.path}"):
            jobs.append(_write(dataset, sink, overwrite=overwrite))
    return jobs


def _dataset(
    spec: PipelineSpec | SideInputSpec, sides: Mapping[str, SideInput], *, file: str, place: str = ""
) -> Dataset:
    with _placed(file, f"{place}source"):
        dataset = _read(spec.source)
    for position, step in enumerate(spec.steps):
        with _placed(file, f"{place}steps[{position}].{step.kind}"):
            dataset = _add(dataset, step, sides)
    return dataset


def _side_input(dataset: Dataset, side: SideInputSpec, name: str) -> SideInput:
    if side.index is not None:
        return dataset.build_index(side.index.column, **side.index.options("column"), name=name)
    return dataset.broadcast(None if side.build is None else load_function(side.build), version=side.version, name=name)


@contextmanager
def _placed(file: str, place: str) -> Iterator[None]:
    """Put the place in the file before what the plan says of it."""
    try:
        yield
    except PlanError as error:
        raise SpecError(file, [f"{place}: {error}"]) from error


def _read(source: Any) -> Dataset:
    import headrace as hr

    options = source.options("type", "path")
    if options.get("size") is not None:
        options["size"] = tuple(options["size"])
    read: Callable[..., Dataset] = getattr(hr, f"read_{source.type}")
    return read(source.path, **options)


def _add(dataset: Dataset, step: Step, sides: Mapping[str, SideInput]) -> Dataset:
    """Add a step: its kind is the name of a method of Dataset, its value what the method takes."""
    value = step.value
    given: dict[str, Any] = {}
    if getattr(value, "retry", None) is not None:
        given["retry"] = Retry(**value.retry.options())
    if getattr(value, "side_inputs", None) is not None:
        given["side_inputs"] = {argument: sides[name] for argument, name in value.side_inputs.items()}
    add: Callable[..., Dataset] = getattr(dataset, "run_inference" if step.kind == "infer" else step.kind)
    match step.kind:
        case "infer":
            return add(make_step_handler(value), **_inference_options(value), **given)
        case "apply":
            return _applied(dataset, value.function, value.args)
        case "add_column":
            options = value.options("function", "column", *given)
            return add(value.column, load_function(value.function), **options, **given)
        case "map" | "map_batches" | "filter" | "flat_map":
            options = value.options("function", "args", *given)
            return add(load_function(value.function), kwargs=value.args, **options, **given)
        case "search":
            return add(sides[value.index], **value.options("index"))
        case "random_shuffle" | "reshuffle":
            return add(**value.options())
        case _:
            return add(value)


def _inference_options(step: InferStep) -> dict[str, Any]:
    options = step.options("handler", "models", "key", "mode", "labelled", "args", "retry", "side_inputs")
    for name in ("preprocess", "postprocess"):
        if name in options:
            options[name] = [load_function(reference) for reference in options[name]]
    for name in ("length_fn", "weight_fn"):
        if ":" in options.get(name, ""):
            options[name] = load_function(options[name])
    if (cache := options.get("cache")) is not None:
        options["cache"] = PredictionCache(**cache.options())
    if (watch := options.get("watch")) is not None:
        options["watch"] = WatchFilePattern(**watch.options())
    if (budget := options.get("memory_budget")) is not None:
        options["memory_budget"] = MemoryBudget(**budget.options())
    return options


def _applied(dataset: Dataset, function: str, arguments: dict[str, Any]) -> Dataset:
    from headrace.dataset import Dataset

    applied = dataset.apply(load_function(function), **arguments)
    if not isinstance(applied, Dataset):
        raise PlanError(f"{function} returns branches; a pipeline file has one way through, so return one Dataset")
    return applied


def _write(dataset: Dataset, sink: Any, *, overwrite: bool) -> Job:
    options = sink.options("type", "path")
    if overwrite:
        options["if_exists"] = "overwrite"
    write: Callable[..., Job] = getattr(dataset, f"write_{sink.type}")
    return write(sink.path, **options)
