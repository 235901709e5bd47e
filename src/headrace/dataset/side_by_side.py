"""Several models asked about every row, composed of one model step for each and one that puts answers together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.dataset.inference import build_inference, suffixed
from headrace.dataset.scope import step_name
from headrace.errors import PlanError, suggestion
from headrace.model.agreement import agreement, labels_of
from headrace.model.keyed import KeyedModelHandler
from headrace.plan.nodes import MapBatches
from headrace.plan.steps import Step
from headrace.records.plain import array_of_numbers
from headrace.records.private import answer_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import Node


class SideBySide:
    """Puts the answers of models together in one column, in place of theirs, and counts on how many rows they agree.

    One for each replica of a step, which reads its `agreement_tallies`.
    """

    def __init__(self, columns: Mapping[str, str], output: str | None, labelled: bool = False) -> None:
        """`columns` are the answers' by the models' names; without `output` they stay where they are."""
        self.columns, self.output, self.labelled = dict(columns), output, labelled
        self.agreement_tallies: Counter[tuple[str, str, str]] = Counter()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with a struct of the answers, or a list of them as text behind the names of their models."""
        answers = {name: batch.column(column) for name, column in self.columns.items()}
        self.agreement_tallies += agreement(answers)
        if self.output is None:
            return batch
        names = [name for name in batch.schema.names if name not in self.columns.values()]
        together = labelled(answers) if self.labelled else pa.StructArray.from_arrays([*answers.values()], [*answers])
        return pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in names), together], names=[*names, self.output]
        )


def labelled(answers: Mapping[str, pa.Array]) -> pa.Array:
    """Return for each row a list of answers as `name:answer`.

    >>> labelled({"old": pa.array([1, 2]), "new": pa.array(["a", None])}).to_pylist()
    [['old:1', 'new:a'], ['old:2', None]]
    """
    import pyarrow.compute as pc  # slow to import, and seldom needed

    texts = [
        pc.binary_join_element_wise(name, labels_of(column).cast(pa.string()), ":") for name, column in answers.items()
    ]
    rows, width = len(texts[0]), len(texts)
    order = np.arange(rows * width).reshape(width, rows).T.reshape(-1)
    values = pa.concat_arrays(texts).take(array_of_numbers(order))
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * width, values)


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
    if keyed.labelled and not isinstance(output, str):
        raise PlanError("labelled=True puts all answers into one column; with output={...} leave it out")
    label = step_name(name, "run_inference")
    columns = _columns(keyed, output)
    settings["model_id_column"] = None  # the answers have the models' names beside them
    node = upstream
    for model, handler in keyed.models.items():
        step = suffixed(label, f"/{model}")
        node = build_inference(node, handler, output=columns[model], name=step, **settings)
    together = Step(
        name=suffixed(label, "/side_by_side"),
        kind="map_batches",
        function=SideBySide,
        args=(columns, output if isinstance(output, str) else None, keyed.labelled),
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
