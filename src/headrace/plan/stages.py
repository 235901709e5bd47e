"""Fusion: which nodes run together in one stage, how many replicas a stage has and of what kind.

Pure: a plan and a number of cores in, a tuple of stages out; the engine builds what this says and `explain` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.plan.nodes import Limit, MapBatches, Read, Reshuffle, RunInference, Shuffle, Union

if TYPE_CHECKING:
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode
    from headrace.plan.steps import Isolation, Step

StageKind: TypeAlias = Literal["read", "steps", "model", "ordered", "union", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Fused nodes that run together, and where their blocks go."""

    name: str
    kind: StageKind
    nodes: tuple[AnyNode, ...]
    steps: tuple[Step, ...] = ()
    """Steps run in the stage: all of them for "steps", those behind the source or model otherwise."""
    replicas: int = 1
    isolation: Isolation = "thread"
    max_process_replicas: int = 0
    """For isolation "auto": worker processes to add when the stage turns out to be the slow one."""
    native: bool = False
    """For isolation "auto": threads keep the cores busy, unless rows are tiny and wait for the interpreter lock."""

    @property
    def head(self) -> AnyNode:
        """The node that the stage's input goes to."""
        return self.nodes[0]

    @property
    def tail(self) -> AnyNode:
        """The node that the stage's output comes from."""
        return self.nodes[-1]


def fuse(plan: Plan, *, cores: int) -> tuple[Stage, ...]:
    """Group the plan's nodes into stages, each after the stages that it reads from."""
    stages: list[Stage] = []
    placed: set[int] = set()
    for node in plan.nodes:
        if id(node) in placed:
            continue
        chain = _chain_from(plan, node)
        placed.update(id(n) for n in chain)
        stages.append(_stage(plan, chain, cores))
    return tuple(stages)


def holds_gil(step: Step) -> bool:
    """Say whether a step runs Python row by row, so that threads would only take turns."""
    if step.kind == "columns":
        return False
    return not (step.kind == "map_batches" and step.batch_format in ("numpy", "pyarrow"))


def _chain_from(plan: Plan, node: AnyNode) -> tuple[AnyNode, ...]:
    """Follow single consumers as long as they may run in the same stage."""
    chain = [node]
    while True:
        following = plan.consumers[id(chain[-1])]
        if len(following) != 1 or not _fuses(chain, following[0]):
            return tuple(chain)
        chain.append(following[0])


def _fuses(chain: list[AnyNode], node: AnyNode) -> bool:
    head, last = chain[0], chain[-1]
    if not isinstance(node, MapBatches):
        return False
    cheap = node.step.kind == "columns"
    if isinstance(head, (Read, RunInference)):
        in_source = isinstance(head, Read) and node.isolation != "process" and node.concurrency is None
        return cheap or (in_source and not holds_gil(node.step))
    if isinstance(last, MapBatches) and isinstance(head, MapBatches):
        return cheap or (
            node.isolation == head.isolation
            and node.concurrency == head.concurrency
            and holds_gil(node.step) == holds_gil(head.step)
        )
    return False


def _stage(plan: Plan, chain: tuple[AnyNode, ...], cores: int) -> Stage:
    head = chain[0]
    steps = tuple(replace(n.step, name=plan.name_of(n)) for n in chain if isinstance(n, MapBatches))
    name = " → ".join(plan.name_of(n) for n in chain)
    if isinstance(head, Read):
        return Stage(name=name, kind="read", nodes=chain, steps=steps, replicas=cores)
    if isinstance(head, MapBatches):
        return _step_stage(name, chain, steps, head, cores)
    if isinstance(head, RunInference):
        return Stage(
            name=name, kind="model", nodes=chain, steps=steps, replicas=head.concurrency, isolation=head.isolation
        )
    if isinstance(head, (Limit, Shuffle)):
        return Stage(name=name, kind="ordered", nodes=chain)
    if isinstance(head, (Union, Reshuffle)):
        return Stage(name=name, kind="union", nodes=chain)
    return Stage(name=name, kind="output", nodes=chain)


def _step_stage(name: str, chain: tuple[AnyNode, ...], steps: tuple[Step, ...], head: MapBatches, cores: int) -> Stage:
    slow = any(holds_gil(step) for step in steps)
    replicas = head.concurrency or (1 if slow and head.isolation != "process" else cores)
    if head.isolation == "auto":
        if not slow:
            return Stage(name=name, kind="steps", nodes=chain, steps=steps, replicas=replicas)
        native = all(step.native or not holds_gil(step) for step in steps)
        return Stage(
            name=name,
            kind="steps",
            nodes=chain,
            steps=steps,
            replicas=head.concurrency or (cores if native else 1),
            isolation="auto",
            max_process_replicas=head.concurrency or (cores if cores > 1 else 0),
            native=native,
        )
    return Stage(name=name, kind="steps", nodes=chain, steps=steps, replicas=replicas, isolation=head.isolation)
