"""A plan: the nodes behind one or more outputs, named, ordered and checked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.plan.nodes import Read, Shuffle, Union, upstreams
from headrace.records.block import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import AnyNode, Broadcast, Output


class Plan:
    """The frozen DAG behind `outputs`; nodes are compared by identity, and two consumers of a node are a branch.

    Raises:
        PlanError: there is no output, or two steps have the same name.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            raise PlanError("nothing to run; pass at least one job, as in hr.run(ds.write_parquet('out/'))")
        self.outputs: tuple[Output, ...] = tuple(outputs)
        self.nodes: tuple[AnyNode, ...] = _in_order(self.outputs)
        self._names = unique_names(self.nodes)

    def name_of(self, node: AnyNode) -> str:
        """Return the node's name, unique in the plan."""
        return self._names[id(node)]

    @cached_property
    def consumers(self) -> Mapping[int, tuple[AnyNode, ...]]:
        """For each node (by id), the nodes that read from it, in the order in which they were reached."""
        result: dict[int, list[AnyNode]] = {id(node): [] for node in self.nodes}
        for node in self.nodes:
            for upstream in upstreams(node):
                result[id(upstream)].append(node)
        return {key: tuple(value) for key, value in result.items()}

    def reads(self) -> list[Read]:
        """Return the sources in plan order."""
        return [node for node in self.nodes if isinstance(node, Read)]


class UnitMap:
    """Which units pass each node: splits numbered over all sources, and the lanes that unions add.

    A `Shuffle` makes an order of its own, hence a single unit.
    """

    def __init__(self, plan: Plan, split_counts: Mapping[int, int]) -> None:
        """Take the number of splits for each Read (by id of the node)."""
        self._plan = plan
        self.base: dict[int, int] = {}
        following = 0
        for node in _in_input_order(plan):
            self.base[id(node)] = following
            following += split_counts[id(node)] if isinstance(node, Read) else 1
        self._counts = split_counts
        self._units: dict[int, list[Unit]] = {}

    def at(self, node: AnyNode) -> list[Unit]:
        """Return the units that come out of a node, in order."""
        known = self._units.get(id(node))
        if known is None:
            known = self._units[id(node)] = self._compute(node)
        return known

    def _compute(self, node: AnyNode) -> list[Unit]:
        if isinstance(node, Read):
            base = self.base[id(node)]
            return [Unit(base + i) for i in range(self._counts[id(node)])]
        if isinstance(node, Shuffle):
            return [Unit(self.base[id(node)])]
        if isinstance(node, Union):
            lanes = [
                Unit(u.split, (*u.lane, i)) for i, upstream in enumerate(node.upstreams) for u in self.at(upstream)
            ]
            return sorted(lanes)
        return self.at(upstreams(node)[0])


def _in_input_order(plan: Plan) -> list[Read | Shuffle]:
    """Order what has units of its own so that each union's inputs follow one another, whatever output comes first.

    Raises:
        PlanError: two unions want opposite orders.
    """
    origins: dict[int, frozenset[int]] = {}
    before: dict[int, set[int]] = {}
    nodes: dict[int, Read | Shuffle] = {}
    for node in plan.nodes:
        found = [origins[id(upstream)] for upstream in upstreams(node)]
        earlier: frozenset[int] = frozenset()
        if isinstance(node, (Read, Shuffle)):
            nodes[id(node)] = node
            before[id(node)] = set().union(*found)
            found = [frozenset([id(node)])]
        for i, own in enumerate(found):
            # What comes in by several ways stays together, split by split, and stands where it came in first.
            for key in own - earlier:
                before[key] |= earlier.difference(*found[i:])
            earlier |= own
        origins[id(node)] = earlier
    ordered: list[Read | Shuffle] = []
    while before:
        following = next((key for key in before if not before[key]), None)
        if following is None:
            names = ", ".join(plan.name_of(nodes[key]) for key in before)
            raise PlanError(f"unions put {names} into opposite orders; run their jobs one after another")
        del before[following]
        ordered.append(nodes[following])
        for keys in before.values():
            keys.discard(following)
    return ordered


def nodes_behind(plan: Plan, output: Output) -> list[AnyNode]:
    """Return the nodes that an output's rows come through, in plan order."""
    wanted: set[int] = set()
    stack: list[AnyNode] = [output.upstream]
    while stack:
        node = stack.pop()
        if id(node) not in wanted:
            wanted.add(id(node))
            stack.extend(upstreams(node))
    return [node for node in plan.nodes if id(node) in wanted]


def _in_order(outputs: Sequence[Output]) -> tuple[AnyNode, ...]:
    """Order nodes so that each comes after its upstreams; deterministic, and without recursion for long chains."""
    ordered: list[AnyNode] = []
    seen: set[int] = set()
    stack: list[tuple[AnyNode, bool]] = [(node, False) for node in reversed(outputs)]
    while stack:
        node, expanded = stack.pop()
        if id(node) in seen:
            continue
        if expanded:
            seen.add(id(node))
            ordered.append(node)
            continue
        stack.append((node, True))
        stack.extend((upstream, False) for upstream in reversed(upstreams(node)))
    return tuple(ordered)


def unique_names(nodes: Sequence[AnyNode | Broadcast], *, what: str = "step") -> dict[int, str]:
    """Keep names given by hand (twice is an error) and number the automatic ones ("map" → map, map_2, …)."""
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    for node in nodes:
        if not is_automatic(node.name):
            if node.name in taken:
                raise PlanError(f"{what} {node.name!r} appears twice; pass another name= to one of the two calls")
            taken[node.name] = 1
            names[id(node)] = node.name
    for node in nodes:
        if is_automatic(node.name):
            stem = node.name.removesuffix(AUTOMATIC)
            number = taken.get(stem, 0) + 1
            name = stem if number == 1 else f"{stem}_{number}"
            while number > 1 and name in taken:
                number += 1
                name = f"{stem}_{number}"
            taken[stem] = number
            taken.setdefault(name, 1)
            names[id(node)] = name
    return names


AUTOMATIC = "\0"
"""Ends a name that was not given by hand, so that the plan may number it."""


def is_automatic(name: str) -> bool:
    """Say whether a step's name was made by Headrace."""
    return name.endswith(AUTOMATIC)
