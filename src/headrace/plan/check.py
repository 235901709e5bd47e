"""Checks of a whole plan, before any data is read."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.plan.nodes import MapBatches, Read, RunInference, Write
from headrace.plan.schemas import Presumed, columns_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.plan.graph import Plan
    from headrace.plan.nodes import InferenceSpec


def check_plan(
    plan: Plan,
    *,
    check_spec: Callable[[InferenceSpec, str, Sequence[str] | None], None],
    check_travel: Callable[[Any, str], None],
) -> None:
    """Find what is wrong with a plan without reading data.

    `check_spec` looks at handlers, given the columns in front of them where these are known, and `check_travel` at what
    must reach a worker process; both come from the layers above.

    Raises:
        PlanError: a column that is not there, two outputs in one folder, an output inside the input, a handler whose
            settings contradict each other or that cannot reach its worker.
        ModelLoadError: a model file is missing.
    """
    known = columns_after(plan)
    _check_outputs(plan)
    for node in plan.nodes:
        name = plan.name_of(node)
        if isinstance(node, RunInference):
            columns = known[id(node.upstream)]
            given = None if columns is None or isinstance(columns, Presumed) else list(columns)
            check_spec(node.spec, name, given)
            if node.isolation == "process":
                check_travel(node.spec.handler, f"handler of step {name!r}")
        elif isinstance(node, MapBatches) and (node.isolation == "process" or node.step.kind == "prepare"):
            own = replace(node.step, side_inputs=())  # they do not travel as plans
            check_travel(own, f"step {name!r}")  # preparers are light, and workers join where they are busy


def _check_outputs(plan: Plan) -> None:
    inputs = [os.path.abspath(path) for read in plan.reads() for path in _local_paths(read)]
    taken: dict[str, str] = {}
    for output in plan.outputs:
        folder = output.sink.folder if isinstance(output, Write) else None
        if folder is None or "://" in folder:
            continue
        place = os.path.abspath(folder)
        if place in taken:
            raise PlanError(f"{taken[place]} and {plan.name_of(output)} write to the same folder {folder}")
        for other in taken:
            inner, outer = sorted((place, other), key=len, reverse=True)
            if _read_with(inner, outer):
                raise PlanError(
                    f"the output {inner} lies inside the output {outer}, so that whoever reads that reads both; "
                    "write to a folder beside it"
                )
        taken[place] = plan.name_of(output)
        for path in inputs:
            if place == path or place.startswith(path.rstrip(os.sep) + os.sep):
                raise PlanError(
                    f"the output {folder} lies inside the input {path}, so that the next run would read its own "
                    "output; write to a folder beside it"
                )


def check_dead_letters(plan: Plan, folder: str | None) -> None:
    """Return if whoever reads an output does not get the dead letters as rows of it.

    Raises:
        PlanError: they would lie among the parts.
    """
    if folder is None or "://" in folder:
        return
    for output in plan.outputs:
        out = output.sink.folder if isinstance(output, Write) else None
        if out is not None and "://" not in out and _read_with(os.path.abspath(folder), os.path.abspath(out)):
            raise PlanError(
                f"dead letters in {folder} would be read as rows of the output {out}; name a folder beside it, or leave"
                " dead_letters= (--dead-letters) out: then they lie in its _dead_letters"
            )


def _read_with(inner: str, outer: str) -> bool:
    """Whether readers of a folder find what is in another one: inside, and not hidden from them."""
    if inner != outer and not inner.startswith(outer.rstrip(os.sep) + os.sep):
        return False
    return not any(part.startswith(("_", ".")) for part in os.path.relpath(inner, outer).split(os.sep) if part != ".")


def _local_paths(read: Read) -> list[str]:
    """Return the folders that a source reads whole (a file or a pattern cannot contain an output)."""
    files = getattr(read.source, "fileset", None)
    paths: tuple[str, ...] = getattr(files, "paths", ())
    return [path for path in paths if "://" not in path and os.path.isdir(path)]
