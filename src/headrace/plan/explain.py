"""Explaining a plan before it runs: steps with the schema after each, and the stages they will run in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.masking import masked
from headrace.plan.nodes import Limit, MapBatches, Read, RunInference, Shuffle, Write, upstreams
from headrace.plan.schemas import columns_after
from headrace.plan.side_inputs import broadcasts_of, plan_of, side_inputs_of
from headrace.plan.stages import fuse
from headrace.records.private import is_private

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode, Broadcast, InferenceSpec
    from headrace.plan.schemas import Columns
    from headrace.plan.stages import Stage
    from headrace.plan.steps import Step

Place: TypeAlias = "Callable[[Plan], tuple[Plan, Mapping[str, str]]]"


def nowhere(plan: Plan) -> tuple[Plan, Mapping[str, str]]:
    """Leave a plan as it is, and its models without a place."""
    return plan, {}


def explain(plan: Plan, *, cores: int, place: Place = nowhere) -> dict[str, Any]:
    """Describe a plan as plain data: `side_inputs` likewise, `steps` in plan order, `stages` as they will run.

    `place` decides how many copies models have, and tells by step where they are put.
    """
    plan, places = place(plan)
    columns, broadcasts = columns_after(plan), broadcasts_of(plan)
    names = {id(broadcast): name for name, broadcast in broadcasts.items()}
    return {
        "side_inputs": [
            {"name": name, "given": _given(broadcast), **explain(plan_of(broadcast), cores=cores, place=place)}
            for name, broadcast in broadcasts.items()
        ],
        "steps": [
            {
                "name": plan.name_of(node),
                "node": type(node).__name__,
                "from": [plan.name_of(up) for up in upstreams(node)],
                "details": _details(node) | _placed(plan.name_of(node), places) | _side_inputs(node, names),
                "schema": _schema(columns[id(node)]),
            }
            for node in plan.nodes
        ],
        "stages": [
            {"name": stage.name, "kind": stage.kind, "replicas": stage.replicas, "runs_in": _runs_in(stage)}
            for stage in fuse(plan, cores=cores)
            if stage.kind != "union"
        ],
    }


def explain_text(plan: Plan, *, cores: int, place: Place = nowhere) -> str:
    """Describe a plan for people."""
    found = explain(plan, cores=cores, place=place)
    lines = []
    for side in found["side_inputs"]:
        lines.append(f"Side input {side['name']}, made before the rest begins: {side['given']}")
        lines += [f"  {line}" for line in _lines(side)]
    return "\n".join([*lines, *_lines(found)])


def _lines(found: dict[str, Any]) -> list[str]:
    lines = ["Steps"]
    for step in found["steps"]:
        origin = f" ← {', '.join(step['from'])}" if step["from"] else ""
        lines.append(f"  {step['name']}{origin}")
        for key, value in step["details"].items():
            lines.append(f"      {key}: {', '.join(value) if isinstance(value, list) else value}")
        lines.append(f"      columns: {_columns_text(step['schema'])}")
    lines.append("Stages")
    for stage in found["stages"]:
        lines.append(f"  {stage['name']}: {stage['runs_in']}")
    return lines


def _given(broadcast: Broadcast) -> str:
    if broadcast.build is None:
        return "a table, in memory once a machine"
    build = getattr(broadcast.build, "__name__", type(broadcast.build).__name__)
    return f"what {build} returns; arrays and indexes in it are in memory once a machine, the rest once a process"


def explain_json(plan: Plan, *, cores: int, place: Place = nowhere) -> str:
    """Describe a plan as JSON."""
    return json.dumps(explain(plan, cores=cores, place=place), indent=2)


def _details(node: AnyNode) -> dict[str, Any]:
    if isinstance(node, Read):
        details: dict[str, Any] = {"source": node.source.name}
        if node.columns is not None:
            details["columns read"] = ", ".join(node.columns)
        if node.shuffle_seed is not None:
            details["files shuffled with seed"] = node.shuffle_seed
        return details
    if isinstance(node, MapBatches):
        step = node.step
        details = {"kind": step.kind}
        if step.kind == "map_batches":
            details["batch_format"] = step.batch_format
            if step.batch_size:
                details["batch_size"] = step.batch_size
        return details | _patience(step)
    if isinstance(node, RunInference):
        return _model_details(node)
    if isinstance(node, Limit):
        return {"rows": node.rows}
    if isinstance(node, Shuffle):
        return {"seed": node.seed, "buffer_rows": node.buffer_rows}
    if isinstance(node, Write):
        return {"sink": node.sink.name, "if_exists": node.if_exists}
    return {}


def _placed(step: str, places: Mapping[str, str]) -> dict[str, str]:
    return {"placed on": places[step]} if step in places else {}


def _side_inputs(node: AnyNode, names: Mapping[int, str]) -> dict[str, Any]:
    used = [f"{argument}={names[id(broadcast)]}" for argument, broadcast in side_inputs_of(node)]
    return {"side inputs": used} if used else {}


def _patience(asked: Step | InferenceSpec) -> dict[str, Any]:
    """Describe attempts and time limits, where there are any."""
    details: dict[str, Any] = {}
    if asked.retry is not None:
        details["attempts"] = asked.retry.attempts
    if asked.timeout_secs is not None:
        details["timeout_secs"] = asked.timeout_secs
    return details


def _model_details(node: RunInference) -> dict[str, Any]:
    spec, limits = node.spec, node.spec.limits
    details: dict[str, Any] = {"handler": type(spec.handler).__name__}
    if isinstance(device := getattr(spec.handler, "device", None), str):
        details["device"] = device
    if spec.key_column is not None:
        details["model"] = "by a function" if is_private(spec.key_column) else f"by {spec.key_column}"
    if node.copies is not None:
        processes = "one worker process" if node.copies == 1 else "worker processes, one each"
        where = "this process" if node.isolation == "thread" else processes
        details["copies of the model"] = f"{node.copies}, in {where}"
    if node.idle_timeout_secs is not None:
        details["idle_timeout_secs"] = node.idle_timeout_secs
    if node.updates is not None:
        pattern, secs = getattr(node.updates, "pattern", None), getattr(node.updates, "interval_secs", 0.0)
        found = f"the newest of {masked(str(pattern))}, looked for every {secs:g} s"
        details["model changes to"] = found if pattern is not None else "what is announced while the run goes on"
    if node.memory_budget is not None:
        details["memory of models"] = node.memory_budget.cpu or "half of the run's memory limit"
        if node.memory_budget.gpu is not None:
            details["of each GPU"] = str(node.memory_budget.gpu)
    if isinstance(spec.inputs, Mapping):
        details["inputs"] = [f"{key}={column}" for key, column in spec.inputs.items()]
    elif spec.inputs is not None:
        details["inputs"] = spec.inputs if isinstance(spec.inputs, str) else list(spec.inputs)
    size = f"{limits.min_batch_size} to {limits.max_batch_size or 'as fast as possible'}"
    details["batch size"] = size
    details |= _patience(spec)
    if limits.max_batch_weight is not None:
        details["batch weight"] = f"at most {limits.max_batch_weight:g}"
    if limits.weight_column is not None:
        details["rows of like length" if limits.padded else "rows weighed"] = f"by {limits.weight_column}"
    details.update({key: value for key, value in node.hints.items() if value is not None})
    if node.durability == "row":
        details["durability"] = "row"
    if node.cache is not None:
        details["cache"] = node.cache.folder
    return details


def _runs_in(stage: Stage) -> str:
    if stage.kind == "output":
        return "one thread that commits in the order of the input"
    many = "1 thread" if stage.replicas == 1 else f"{stage.replicas} threads"
    if stage.isolation == "process" and not (isinstance(stage.head, RunInference) and stage.head.copies is not None):
        return "1 worker process" if stage.replicas == 1 else f"{stage.replicas} worker processes"
    if stage.max_process_replicas and stage.native:
        return f"{many} in native code; worker processes join only where rows are tiny"
    if stage.max_process_replicas:
        return f"{many}; worker processes join if it proves heavy"
    return many


def _schema(columns: Columns | None) -> dict[str, str | None] | None:
    if columns is None:
        return None
    public = ((name, type_) for name, type_ in columns.items() if not is_private(name))
    return {name: None if type_ is None else _type_text(type_) for name, type_ in public}


def _type_text(type_: pa.DataType) -> str:
    """Write a type; how a dictionary is numbered is nobody's concern.

    >>> import pyarrow as pa
    >>> _type_text(pa.dictionary(pa.int32(), pa.string())), _type_text(pa.int64())
    ('dictionary<string>', 'int64')
    """
    import pyarrow as pa

    return f"dictionary<{type_.value_type}>" if pa.types.is_dictionary(type_) else str(type_)


def _columns_text(schema: dict[str, str | None] | None) -> str:
    if schema is None:
        return "known when it runs (declare them with output_schema=)"
    return ", ".join(f"{name} ({type_ or '?'})" for name, type_ in schema.items()) or "none"
