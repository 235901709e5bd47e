"""What is known of the columns after each step, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from headrace.errors import PlanError, UnknownColumnError
from headrace.plan.columns import Rename, Select
from headrace.plan.nodes import MapBatches, Read, RunInference, Union, upstreams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode, InferenceSpec

Columns: TypeAlias = dict[str, "pa.DataType | None"]
"""Column names with their types; None for a type that only the run will tell."""


class Presumed(dict[str, "pa.DataType | None"]):
    """What is known behind an input without any column, such as a file of no bytes: what a step names is taken to be.

    So a job whose input is empty today ends well, with the columns that its steps name.
    """


def columns_after(plan: Plan) -> dict[int, Columns | None]:
    """Return what is known after each node (by id); None where nothing is.

    Raises:
        UnknownColumnError: a step names a column that cannot be there.
        PlanError: a step would make a column twice.
    """
    known: dict[int, Columns | None] = {}
    for node in plan.nodes:
        known[id(node)] = _after(plan, node, known)
    return known


def known_schema(plan: Plan, node: AnyNode) -> pa.Schema | None:
    """Return the columns after a node, those of unknown type as nulls; None where nothing is known.

    It is what an output without any row says of its columns.
    """
    columns = columns_after(plan)[id(node)]
    return None if columns is None else pa.schema([(name, type_ or pa.null()) for name, type_ in columns.items()])


def _after(plan: Plan, node: AnyNode, known: dict[int, Columns | None]) -> Columns | None:
    if isinstance(node, Read):
        return _read(plan, node)
    if isinstance(node, Union):
        return _union([known[id(u)] for u in node.upstreams])
    before = known[id(upstreams(node)[0])]
    if isinstance(before, Presumed):
        before = {**dict.fromkeys(_named_by(node)), **before}
        after = _behind(plan, node, before)
        return None if after is None else Presumed(after)
    return _behind(plan, node, before)


def _behind(plan: Plan, node: AnyNode, before: Columns | None) -> Columns | None:
    if isinstance(node, MapBatches):
        return _step(plan, node, before)
    if isinstance(node, RunInference):
        return _inference(plan, node, before)
    return before


def _named_by(node: AnyNode) -> list[str]:
    """Name the columns that a node cannot do without."""
    if isinstance(node, RunInference):
        return columns_read(node.spec)
    if isinstance(node, MapBatches) and node.step.kind == "columns":
        return list(node.step.function.needs)  # type: ignore[attr-defined]
    return []


def _read(plan: Plan, node: Read) -> Columns | None:
    schema = node.source.schema()
    if schema is None:
        return None
    columns: Columns = {field.name: field.type for field in schema}
    if not columns:
        return Presumed()
    if node.columns is None:
        return columns
    for name in node.columns:
        if name not in columns:
            raise UnknownColumnError(name, columns, step=plan.name_of(node))
    return {name: type_ for name, type_ in columns.items() if name in node.columns}


def _step(plan: Plan, node: MapBatches, before: Columns | None) -> Columns | None:
    step, name = node.step, plan.name_of(node)
    if step.output_schema is not None:
        return {field.name: field.type for field in step.output_schema}
    if step.kind == "filter" or (before is None and step.kind != "columns"):
        return before
    if step.kind in ("add_column", "prepare"):
        return {**(before or {}), dict(step.kwargs)["column"]: None}
    if step.kind == "columns" and before is not None:
        after = step.function.after(list(before), name)  # type: ignore[attr-defined]
        back = {new: old for old, new in step.function.pairs} if isinstance(step.function, Rename) else {}
        return {column: before[back.get(column, column)] for column in after}
    if isinstance(step.function, Select):
        return dict.fromkeys(step.function.names)
    return None


def _inference(plan: Plan, node: RunInference, before: Columns | None) -> Columns | None:
    spec, name = node.spec, plan.name_of(node)
    if before is None:
        return None
    for column in columns_read(spec):
        if column not in before:
            raise UnknownColumnError(column, before, step=name)
    new = [spec.output] if isinstance(spec.output, str) else list(spec.output.values())
    for column in new:
        if column in before:
            raise PlanError(
                f"step {name!r} would overwrite column {column!r}; pass another output=, or drop the column before"
            )
    after: Columns = {**before, **dict.fromkeys(new)}
    if spec.model_id_column is not None:
        after[spec.model_id_column] = pa.dictionary(pa.int32(), pa.string())
    return after


def columns_read(spec: InferenceSpec) -> list[str]:
    """Name the columns that a model stage mentions: its inputs, and those that weigh rows or name their model."""
    others = (spec.limits.weight_column, spec.key_column)
    return [*input_columns(spec.inputs), *(name for name in others if name is not None)]


def input_columns(inputs: object) -> list[str]:
    """Name the columns that `inputs=` mentions.

    >>> input_columns("text"), input_columns({"ids": "a", "mask": ("b", "c")})
    (['text'], ['a', 'b', 'c'])
    """
    if inputs is None:
        return []
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, Mapping):
        return [column for value in inputs.values() for column in input_columns(value)]
    return list(inputs)  # type: ignore[call-overload,no-any-return]


def _union(all_columns: Sequence[Columns | None]) -> Columns | None:
    if any(columns is None for columns in all_columns):
        return None
    all_columns = [columns for columns in all_columns if not isinstance(columns, Presumed)] or all_columns
    merged: Columns = Presumed() if all(isinstance(columns, Presumed) for columns in all_columns) else {}
    for columns in all_columns:
        for name, type_ in (columns or {}).items():
            if merged.get(name) is None:
                merged[name] = type_
    return merged
