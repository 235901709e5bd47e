"""Rules: the same rows with less work. Each takes a plan and returns one; the engine runs the last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from headrace.plan.columns import Drop, Rename, Select
from headrace.plan.graph import Plan
from headrace.plan.nodes import Limit, MapBatches, Node, Read, Reshuffle, RunInference, Shuffle, Union, Write, upstreams
from headrace.plan.schemas import columns_read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.plan.nodes import AnyNode, Output
    from headrace.plan.steps import OnError


def optimised(plan: Plan, *, on_error: OnError) -> Plan:
    """Apply all rules; step names stay what they were."""
    named = with_names(plan)
    return project(limit_early(named, on_error=on_error))


def with_names(plan: Plan) -> Plan:
    """Write the plan's unique names into its nodes, so that rules cannot change them."""

    def visit(node: AnyNode, inputs: Sequence[Node]) -> AnyNode:
        name = plan.name_of(node)
        node = _with_inputs(node, inputs)
        if isinstance(node, MapBatches):
            return replace(node, step=replace(node.step, name=name))
        return replace(node, name=name)

    return _rebuilt(plan, visit)


def with_copies(plan: Plan, copies: Mapping[str, int]) -> Plan:
    """Say of models, by the names of their steps, how many copies there are."""

    def visit(node: AnyNode, inputs: Sequence[Node]) -> AnyNode:
        number = copies.get(plan.name_of(node))
        node = _with_inputs(node, inputs)
        if not isinstance(node, RunInference) or number is None:
            return node
        return replace(node, copies=number, concurrency=max(node.concurrency, number))

    return _rebuilt(plan, visit)


def limit_early(plan: Plan, *, on_error: OnError) -> Plan:
    """Move limits in front of steps that keep every row, so that rows behind the limit are never computed.

    Only where failures end the run: otherwise the limit counts rows that succeed, and has to stay behind. And never in
    front of an output, which a later run may go on with, setting failed rows aside: it would find rows that this one
    had not counted as wanted.
    """
    if any(isinstance(output, Write) for output in plan.outputs):
        return plan

    def visit(node: AnyNode, inputs: Sequence[Node]) -> AnyNode:
        node = _with_inputs(node, inputs)
        if not isinstance(node, Limit):
            return node
        chain: list[Node] = []
        at = node.upstream
        while _keeps_rows(at, on_error) and shared.get(_key(at), 1) == 1:
            chain.append(at)
            at = upstreams(at)[0]
        moved: Node = replace(node, upstream=at)
        for above in reversed(chain):
            moved = cast("Node", _with_inputs(above, [moved]))
        return moved

    shared = {_key(node): len(plan.consumers[id(node)]) for node in plan.nodes}
    return _rebuilt(plan, visit)


def project(plan: Plan) -> Plan:
    """Read only the columns that something uses, where all users are known."""
    wanted = _wanted_columns(plan)

    def visit(node: AnyNode, inputs: Sequence[Node]) -> AnyNode:
        if isinstance(node, Read) and node.columns is None:
            columns = wanted.get(id(node))
            schema = node.source.schema() if columns is not None else None
            if columns is not None and schema is not None and schema.names:
                kept = tuple(name for name in schema.names if name in columns)
                # A batch has to have a column to count its rows by.
                return replace(node, columns=kept or (schema.names[0],))
        return _with_inputs(node, inputs)

    return _rebuilt(plan, visit)


def _wanted_columns(plan: Plan) -> dict[int, set[str] | None]:
    """For each node (by id): the output columns that its consumers use; None is all."""
    wanted: dict[int, set[str] | None] = {}
    for node in reversed(plan.nodes):
        after = wanted.get(id(node))
        if id(node) not in wanted:
            after = None  # an output: everything is wanted
        before = _before(node, after)
        for upstream in upstreams(node):
            if before is None or wanted.get(id(upstream), set()) is None:
                wanted[id(upstream)] = None
            else:
                wanted[id(upstream)] = (wanted.get(id(upstream)) or set()) | before
    return wanted


def _before(node: AnyNode, after: set[str] | None) -> set[str] | None:
    """Return the input columns a node needs to give the output columns wanted."""
    if isinstance(node, MapBatches) and node.step.kind == "columns":
        function = node.step.function
        if isinstance(function, Select):
            return set(function.names) if after is None else set(function.names) & after or set(function.names[:1])
        if isinstance(function, Drop):
            return None if after is None else set(after) | set(function.names)
        if isinstance(function, Rename):
            back = {new: old for old, new in function.pairs}
            return None if after is None else {back.get(name, name) for name in after} | set(dict(function.pairs))
        return None
    if isinstance(node, MapBatches) and node.step.kind in ("add_column", "prepare"):
        step = node.step
        return None if after is None or step.reads is None else (after - {dict(step.kwargs)["column"]}) | {*step.reads}
    if isinstance(node, RunInference):
        if after is None or node.spec.inputs is None:
            return None
        made = {node.spec.output} if isinstance(node.spec.output, str) else set(node.spec.output.values())
        return (after - made - {node.spec.model_id_column or ""}) | set(columns_read(node.spec))
    if isinstance(node, (Limit, Shuffle, Reshuffle, Union)):
        return after
    return None


def _keeps_rows(node: Node, on_error: OnError) -> bool:
    if isinstance(node, RunInference):
        return (node.on_error or on_error) == "fail"
    if isinstance(node, MapBatches):
        step = node.step
        if step.kind == "columns":
            return True
        return step.kind in ("map", "add_column", "prepare") and (step.on_error or on_error) == "fail"
    return isinstance(node, Reshuffle)


def _key(node: AnyNode) -> str:
    """Nodes are rebuilt while rules run; their names, unique since `with_names`, stay."""
    return node.name


def _rebuilt(plan: Plan, visit: Callable[[AnyNode, Sequence[Node]], AnyNode]) -> Plan:
    """Rebuild a plan bottom up; a node shared by several consumers stays shared."""
    new: dict[int, Any] = {}
    for node in plan.nodes:
        new[id(node)] = visit(node, [new[id(upstream)] for upstream in upstreams(node)])
    return Plan(cast("list[Output]", [new[id(output)] for output in plan.outputs]))


def _with_inputs(node: AnyNode, inputs: Sequence[Node]) -> AnyNode:
    if isinstance(node, Read):
        return node
    if isinstance(node, Union):
        return (
            node
            if all(a is b for a, b in zip(node.upstreams, inputs, strict=True))
            else replace(node, upstreams=tuple(inputs))
        )
    return node if node.upstream is inputs[0] else replace(node, upstream=inputs[0])
