"""Side inputs in a plan: each is the end of a plan of its own, which is complete before the steps that use it begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.plan.graph import Plan, unique_names
from headrace.plan.nodes import Collect, MapBatches, RunInference

if TYPE_CHECKING:
    from headrace.plan.nodes import AnyNode, Broadcast


def side_inputs_of(node: AnyNode) -> tuple[tuple[str, Broadcast], ...]:
    """Return the side inputs of a node with the names of the arguments that they are."""
    given: Any = ()
    if isinstance(node, MapBatches):
        given = node.step.side_inputs
    elif isinstance(node, RunInference):
        given = node.spec.side_inputs
    found: tuple[tuple[str, Broadcast], ...] = given
    return found


def broadcasts_of(plan: Plan) -> dict[str, Broadcast]:
    """Return all side inputs by their names, those that others are made with before them.

    Raises:
        PlanError: two have the same name.
    """
    found: dict[int, Broadcast] = {}
    _collect(plan, found)
    names = unique_names(tuple(found.values()), what="side input")
    return {names[key]: broadcast for key, broadcast in found.items()}


def plan_of(broadcast: Broadcast) -> Plan:
    """Return the plan that makes the rows of a side input."""
    return Plan([Collect(name="side_rows", upstream=broadcast.upstream)])


def _collect(plan: Plan, found: dict[int, Broadcast]) -> None:
    for node in plan.nodes:
        for _, broadcast in side_inputs_of(node):
            if id(broadcast) not in found:
                _collect(plan_of(broadcast), found)
                found[id(broadcast)] = broadcast
