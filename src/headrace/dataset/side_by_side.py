"""Several models asked about every row, composed of one model step for each and one that puts answers together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.dataset.inference import build_inference, suffixed
from headrace.dataset.scope import step_name
from headrace.errors import PlanError, suggestion
from headrace.model.keyed import KeyedModelHandler
from headrace.plan.nodes import MapBatches
from headrace.plan.steps import Step
from headrace.records.private import answer_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import Node


class SideBySide:
    """Puts columns together as a struct in one column, in place of them."""

    def __init__(self, columns: Mapping[str, str], output: str) -> None:
        """`columns` are those to put together, by the names of the struct's fields."""
        self.columns, self.output = dict(columns), output

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the struct."""
        names = [name for name in batch.schema.names if name not in self.columns.values()]
        together = pa.StructArray.from_arrays([batch.column(c) for c in self.columns.values()], names=[*self.columns])
        return pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in names), together], names=[*names, self.output]
        )


def infer(upstream: Node, handler: Any, **settings: Any) -> Node:
    """Compose a model, or the models of a `KeyedModelHandler`, behind `upstream`; see `build_inference`."""
    if isinstance(handler, KeyedModelHandler) and handler.mode == "all":
        return _ask_all(upstream, handler, **settings)
    return build_inference(upstream, handler, **settings)


def _ask_all(
    upstream: Node, keyed: KeyedModelHandler, *, output: str | Mapping[str, str], name: str | None, **settings: Any
) -> Node:
    if settings.get("memory_budget") is not None:
        raise PlanError("with mode='all' all models are in memory together; leave memory_budget= out, or use key=")
    label = step_name(name, "run_inference")
    columns = _columns(keyed, output)
    settings["model_id_column"] = None  # the answers have the models' names beside them
    node = upstream
    for model, handler in keyed.models.items():
        step = suffixed(label, f"/{model}")
        node = build_inference(node, handler, output=columns[model], name=step, **settings)
    if not isinstance(output, str):
        return node
    together = Step(
        name=suffixed(label, "/side_by_side"),
        kind="map_batches",
        function=SideBySide(columns, output),
        batch_format="pyarrow",
        row_wise=True,
    )
    return MapBatches(upstream=node, step=together)


def _columns(keyed: KeyedModelHandler, output: str | Mapping[str, str]) -> dict[str, str]:
    """Return the column of each model's answers."""
    if isinstance(output, str):
        return {name: answer_column(number) for number, name in enumerate(keyed.models)}
    names: Sequence[str] = [*keyed.models]
    for name in (*output, *names):
        if name not in names or name not in output:
            raise PlanError(
                f"output={dict(output)!r} has to name a column for each model, {', '.join(names)}, and {name!r} is in"
                f" one of the two only;{suggestion(name, output if name in names else names)}"
            )
    return dict(output)
