"""From a plan to stages at work: channels, skips, and who records which failures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.channel import Channel, Gate
from headrace.engine.ordered_stage import LimitStage, ShuffleStage
from headrace.engine.outlet import Edge, Needed, Outlet
from headrace.engine.output_stage import CollectStage, WriteStage
from headrace.engine.processes.terms import Terms
from headrace.engine.read_stage import ReadStage
from headrace.engine.step_stage import StepStage
from headrace.engine.steps import StepChain
from headrace.errors import StageError
from headrace.plan.graph import Plan, UnitMap, nodes_behind
from headrace.plan.lanes import first_lanes
from headrace.plan.nodes import Collect, Limit, Read, Reshuffle, RunInference, Shuffle, Union, Write
from headrace.plan.schemas import known_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.engine.budget import Budget
    from headrace.engine.commit.committer import Committer
    from headrace.engine.commit.done import Done
    from headrace.engine.commit.journal import Journal
    from headrace.engine.commit.retrying import Retrying
    from headrace.engine.memories import Memories
    from headrace.engine.memory import MemoryWatch
    from headrace.engine.model_wiring import ModelWiring
    from headrace.engine.options import ExecutionOptions
    from headrace.engine.processes.crew import Crew
    from headrace.engine.processes.supervised import SupervisedReplica
    from headrace.engine.side_inputs import SideInputs
    from headrace.engine.stage_run import StageRun
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.model.placement import Placed
    from headrace.plan.lanes import Lane
    from headrace.plan.nodes import AnyNode, InferenceSpec
    from headrace.plan.stages import Stage
    from headrace.plan.steps import Step
    from headrace.records.block import Block
    from headrace.sources.source import Split


MakeProcess: TypeAlias = "Callable[..., SupervisedReplica]"
"""Of a name, a crew and, for copies of a model, a number."""


class Wiring:
    """Builds the stages of one run."""

    def __init__(
        self,
        plan: Plan,
        state: RunState,
        options: ExecutionOptions,
        *,
        stages: Sequence[Stage],
        budget: Budget,
        memory: MemoryWatch,
        splits: Mapping[int, Sequence[Split]],
        committers: Mapping[int, Committer],
        on_split: Callable[[Read, int], str | None],
        memories: Memories,
        side_inputs: SideInputs,
        placement: Mapping[str, Placed] = MappingProxyType({}),
        collected: Done | None = None,
    ) -> None:
        """`placement` says, by step, which GPUs the processes of its model see."""
        self._plan, self._state, self._options = plan, state, options
        self._splits, self._committers, self._on_split = splits, committers, on_split
        self._memories, self._side_inputs = memories, side_inputs
        self._placement = placement
        self._collected = collected
        """What the caller has had before, where rows are collected."""
        self._units = UnitMap(plan, {key: len(found) for key, found in splits.items()})
        self._budget, self._memory = budget, memory
        self._gate = Gate(budget_bytes=budget.held_bytes)
        state.on_stop(self._gate.cancel)
        self._fused = [_within(budget, stage) for stage in stages]
        self._inboxes: dict[int, Channel] = {}
        self._models: ModelWiring | None = None
        self._runs: dict[int, StageRun] = {}
        """By the node at a stage's head."""

    def build(self) -> tuple[StageRun, ...]:
        """Make the stages, in plan order; channels first."""
        edges = {id(stage): self._targets(stage.tail, ()) for stage in self._fused if stage.kind != "output"}
        producers: dict[int, int] = {}
        for stage in self._fused:
            if stage.kind not in ("output", "union"):
                for target, _ in edges[id(stage)]:
                    producers[id(target)] = producers.get(id(target), 0) + 1
        for stage in self._fused:
            if stage.kind not in ("read", "union"):
                budget = self._budget
                nbytes = budget.loading_inbox_bytes if stage.kind == "model" else budget.channel_bytes
                channel = Channel(budget_bytes=nbytes, producers=producers.get(id(stage.head), 0))
                self._state.on_stop(channel.cancel)
                self._inboxes[id(stage.head)] = channel
        for stage in self._fused:
            if stage.kind != "union":
                self._runs[id(stage.head)] = self._run(stage, edges.get(id(stage), []))
        return tuple(self._runs.values())

    def listeners(self) -> list[Callable[[bool], None]]:
        """Return who has to know when memory is short, and when it no longer is."""
        return [self._gate.press, *(channel.press for channel in self._inboxes.values())]

    # -- edges -----------------------------------------------------------------------------------------------------

    def _targets(self, node: AnyNode, lane: tuple[int, ...]) -> list[tuple[AnyNode, tuple[int, ...]]]:
        """Return the stage heads that a node's blocks go to, with the lanes that unions in between add."""
        found: list[tuple[AnyNode, tuple[int, ...]]] = []
        for consumer, taken in self._consumers(node):
            if isinstance(consumer, (Union, Reshuffle)):
                found.extend(self._targets(consumer, lane + taken))
            else:
                found.append((consumer, lane + taken))
        return found

    def _consumers(self, node: AnyNode) -> list[tuple[AnyNode, tuple[int, ...]]]:
        unique = {id(consumer): consumer for consumer in self._plan.consumers[id(node)]}
        found: list[tuple[AnyNode, tuple[int, ...]]] = []
        for consumer in unique.values():
            if isinstance(consumer, Union):
                found.extend((consumer, (i,)) for i, upstream in enumerate(consumer.upstreams) if upstream is node)
            else:
                found.append((consumer, ()))
        return found

    def _views(self, node: AnyNode) -> list[tuple[Done, tuple[int, ...]]] | None:
        """Return the sinks behind a node with the lanes on the way; None where a node in between needs every row."""
        if isinstance(node, Write):
            return [(self._committers[id(node)].done, ())]
        if isinstance(node, Collect) and self._collected is not None:
            return [(self._collected, ())]
        if isinstance(node, (Limit, Shuffle, Collect)):
            return None
        found: list[tuple[Done, tuple[int, ...]]] = []
        for consumer, taken in self._consumers(node):
            behind = self._views(consumer)
            if behind is None:
                return None
            found.extend((done, taken + lane) for done, lane in behind)
        return found

    def _outlet(self, targets: Sequence[tuple[AnyNode, tuple[int, ...]]]) -> Outlet:
        return Outlet(
            [
                Edge(self._inboxes[id(node)], lane, self._needed(node, lane), into_sink=isinstance(node, Write))
                for node, lane in targets
            ]
        )

    def _needed(self, node: AnyNode, lane: tuple[int, ...]) -> Needed:
        views = self._views(node)
        return Needed(None if views is None else [(done, lane + behind) for done, behind in views])

    # -- stages ----------------------------------------------------------------------------------------------------

    def _run(self, stage: Stage, targets: Sequence[tuple[AnyNode, tuple[int, ...]]]) -> StageRun:
        outlet = self._outlet(targets)
        head = stage.head
        if isinstance(head, Read):
            return ReadStage(
                stage,
                self._state,
                outlet,
                node=head,
                name=self._plan.name_of(head),
                splits=self._splits[id(head)],
                base=self._units.base[id(head)],
                gate=self._gate,
                memory=self._memory,
                make_task=self._steps(stage),
                on_split=partial(self._on_split, head),
                fail=partial(self._refuse_unreadable, self._plan.name_of(head)),
                outage_secs=self._options.max_outage_secs,
                retrying=self._retrying(),
            )
        inbox = self._inboxes[id(head)]
        if isinstance(head, RunInference):
            return self._model(stage, outlet, inbox, head)
        if isinstance(head, (Limit, Shuffle)):
            return self._ordered(stage, outlet, inbox, head)
        if isinstance(head, Write):
            owned = self._owned_steps(head)
            return WriteStage(
                stage,
                self._state,
                inbox,
                committer=self._committers[id(head)],
                owned_steps=owned,
                steps=first_lanes(self._plan, head),
                empty_schema=partial(known_schema, self._plan, head),
                behind=partial(self._stages_behind, head),
                gate=self._gate,
            )
        if isinstance(head, Collect):
            return CollectStage(
                stage,
                self._state,
                inbox,
                units=self._units.at(head),
                gate=self._gate,
                frontier=self._collected.frontier if self._collected else None,
            )
        return StepStage(
            stage,
            self._state,
            outlet,
            inbox,
            make_task=self._steps(stage),
            make_process=None if stage.isolation == "thread" else self._steps_in_process(stage),
        )

    def _model(self, stage: Stage, outlet: Outlet, inbox: Channel, head: RunInference) -> StageRun:
        from headrace.engine.model_wiring import ModelWiring  # brings thirty modules, which are for models alone

        if self._models is None:
            self._models = ModelWiring(
                self._state,
                self._options,
                budget=self._budget,
                memory=self._memory,
                gate=self._gate,
                memories=self._memories,
                own_spec=self._own_spec,
                in_process=self._in_process,
            )
        name = self._plan.name_of(head)
        return self._models.stage_of(
            stage,
            outlet,
            inbox,
            head,
            name=name,
            make_steps=self._steps(stage),
            journals=self._journals_behind(head),
            placed=self._placement.get(name),
        )

    def _journals_behind(self, node: AnyNode) -> list[Journal]:
        outputs = [o for o in self._plan.outputs if isinstance(o, Write) and node in nodes_behind(self._plan, o)]
        return [self._committers[id(output)].claim.journal for output in outputs]

    def _ordered(self, stage: Stage, outlet: Outlet, inbox: Channel, head: Limit | Shuffle) -> StageRun:
        common: dict[str, Any] = {
            "name": self._plan.name_of(head),
            "units": self._units.at(head.upstream),
            "gate": self._gate,
        }
        if isinstance(head, Limit):
            return LimitStage(stage, self._state, outlet, inbox, rows=head.rows, **common)
        (unit,) = self._units.at(head)
        return ShuffleStage(
            stage,
            self._state,
            outlet,
            inbox,
            seed=head.seed,
            buffer_rows=head.buffer_rows,
            unit=unit,
            lanes=first_lanes(self._plan, head),
            **common,
        )

    def _steps(self, stage: Stage) -> Callable[[], Task]:
        options, steps = self._options, self._own_steps(stage)
        return partial(StepChain, steps, options.on_error, hopeless_rows=options.hopeless_rows, pause=self._state.pause)

    def _steps_in_process(self, stage: Stage) -> MakeProcess:
        options = self._options
        make = partial(StepChain, self._own_steps(stage), options.on_error, hopeless_rows=options.hopeless_rows)
        return self._in_process(make, [Terms.of(step) for step in stage.steps])

    def _own_steps(self, stage: Stage) -> list[Step]:
        """Return the steps as replicas get them: with their side inputs, which are light, in place of plans."""
        return [replace(step, side_inputs=self._side_inputs.bound(step.side_inputs)) for step in stage.steps]

    def _own_spec(self, spec: InferenceSpec) -> InferenceSpec:
        return replace(spec, side_inputs=self._side_inputs.bound(spec.side_inputs))

    def _in_process(
        self,
        make_task: Callable[[], Task],
        terms: Sequence[Terms],
        *,
        share: int | None = None,
        placed: Placed | None = None,
    ) -> MakeProcess:
        """Return how to make a replica in a worker process.

        `share` workers divide the cores among their threads. Where models are `placed`, the number of a copy says which
        GPUs its process sees; None leaves it all.
        """
        limits = {i: one.timeout_secs for i, one in enumerate(terms) if one.timeout_secs is not None}

        def make(name: str, crew: Crew, number: int | None = 0) -> SupervisedReplica:
            from headrace.engine.processes.replica import ProcessReplica
            from headrace.engine.processes.start import thread_environment
            from headrace.engine.processes.supervised import SupervisedReplica

            env = thread_environment(self._options.cores // share if share else 1)
            if placed is not None and number is not None:
                env |= placed.environment(number)
            replica = SupervisedReplica(
                lambda: ProcessReplica(make_task(), name=name, env=env, limits_secs=limits),
                terms=terms,
                crew=crew,
                pause=self._state.pause,
            )
            self._state.on_stop(replica.kill)
            return replica

        return make

    def _stages_behind(self, output: Write) -> list[StageRun]:
        """Return the stages that an output's rows have passed."""
        behind = {id(node) for node in nodes_behind(self._plan, output)}
        return [run for key, run in self._runs.items() if key in behind]

    def _retrying(self) -> Retrying | None:
        """Return the rows that any output runs again."""
        several = [c.retrying for c in self._committers.values() if c.retrying is not None]
        return several[0].union(several) if several else None

    # -- failures --------------------------------------------------------------------------------------------------

    def _owned_steps(self, output: Write) -> Mapping[str, Lane]:
        """Name the steps whose failures this sink records, with the lanes that those come by.

        A step belongs to the first sink that sees all its rows.
        """
        lanes = first_lanes(self._plan, output)
        owned: dict[str, Lane] = {}
        for node in self._plan.nodes:
            owners = self._sinks_behind(node)
            if owners and owners[0] is output:
                name = self._plan.name_of(node)
                owned[name] = lanes[name]
        return owned

    def _sinks_behind(self, node: AnyNode) -> list[Write]:
        """Return the sinks behind a node, those first that no limit cuts off."""
        whole: list[Write] = []
        limited: list[Write] = []
        stack: list[tuple[AnyNode, bool]] = [(node, False)]
        while stack:
            at, cut = stack.pop()
            if isinstance(at, Write):
                (limited if cut else whole).append(at)
            stack.extend((c, cut or (isinstance(at, Limit) and at is not node)) for c, _ in self._consumers(at))
        order = {id(output): i for i, output in enumerate(self._plan.outputs)}
        return sorted(whole, key=lambda w: order[id(w)]) + sorted(limited, key=lambda w: order[id(w)])

    def _refuse_unreadable(self, name: str, block: Block) -> None:
        """End the run at a row that cannot be read, under on_error="fail"."""
        if self._options.on_error == "fail":
            failure = block.failures[0]
            place = f"row {failure.position} of {failure.file}" if failure.file else f"row {failure.ordinal}"
            raise StageError(
                f"step {name!r} cannot read {place} ({failure.message}); "
                "pass on_error='dead_letter' to set such rows aside and go on"
            )


def _within(budget: Budget, stage: Stage) -> Stage:
    """Take replicas away where memory does not suffice for all of them."""
    if stage.kind == "read":
        return replace(stage, replicas=min(stage.replicas, budget.readers))
    replicas = min(stage.replicas, budget.workers) if stage.native else stage.replicas
    return replace(stage, replicas=replicas, max_process_replicas=min(stage.max_process_replicas, budget.workers))
