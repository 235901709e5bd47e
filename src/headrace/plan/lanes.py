"""By which way a step's failures are recorded, where its rows reach a node by several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.plan.nodes import Limit, Shuffle, Union, upstreams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode

Lane = tuple[int, ...]
"""Inputs taken at the unions on the way, as in `Unit.lane`."""


def first_lanes(plan: Plan, node: AnyNode) -> Mapping[str, Lane]:
    """Return, for each step before a node, the lanes that unions add on the first way from there to the node.

    Rows that come by two ways are two rows; a failure is one, and is recorded on the first way alone, or on the first
    that no limit cuts off.
    """
    found: dict[str, Lane] = {}
    later: list[tuple[AnyNode, Lane, bool]] = []
    stack: list[tuple[AnyNode, Lane, bool]] = [(node, (), False)]
    while stack or later:
        if not stack:
            stack, later = list(reversed(later)), []
        at, lane, mixed = stack.pop()
        name = plan.name_of(at)
        if name in found:
            continue
        found[name] = lane
        # Behind a shuffle rows have forgotten by which lanes they came to it.
        before_mixed = mixed or (isinstance(at, Shuffle) and at is not node)
        inputs = upstreams(at)
        lanes = [(i, *lane) if isinstance(at, Union) and not mixed else lane for i in range(len(inputs))]
        ahead = [(upstream, its, before_mixed) for upstream, its in zip(inputs, lanes, strict=True)]
        if isinstance(at, Limit) and at is not node:
            later.extend(ahead)
        else:
            stack.extend(reversed(ahead))
    return found


def came_by(lane: Lane, ending: Lane) -> bool:
    """Say whether rows with the lane `lane` came by the way whose unions add `ending`.

    >>> came_by((1, 0), (0,)), came_by((0,), (1,)), came_by((2,), ())
    (True, False, True)
    """
    return lane[len(lane) - len(ending) :] == ending
