"""From a model node to the stage that asks it: alone, by copies, by key, or with versions that follow one another."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.budget import models_bytes
from headrace.engine.copied_stage import CopiedModelStage
from headrace.engine.copies import Copies
from headrace.engine.gathering import Gathering
from headrace.engine.keyed_stage import KeyedModelStage
from headrace.engine.model_stage import ModelStage
from headrace.engine.notes import Notes
from headrace.engine.placing import shares_of
from headrace.engine.predict import PredictTask
from headrace.engine.processes.crew import Crew
from headrace.engine.processes.terms import Terms
from headrace.engine.refreshed_stage import RefreshedModelStage
from headrace.engine.same_model import same_model
from headrace.engine.versions import Versions
from headrace.model.keyed import KeyedModelHandler
from headrace.model.scales import Scales

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.engine.budget import Budget
    from headrace.engine.channel import Channel, Gate
    from headrace.engine.commit.journal import Journal
    from headrace.engine.memories import Memories
    from headrace.engine.memory import MemoryWatch
    from headrace.engine.options import ExecutionOptions
    from headrace.engine.outlet import Outlet
    from headrace.engine.stage_run import StageRun
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.engine.wiring import MakeProcess
    from headrace.model.placement import Placed
    from headrace.plan.nodes import InferenceSpec, RunInference
    from headrace.plan.stages import Stage
    from headrace.plan.steps import OnError


class ModelWiring:
    """Builds the model stages of one run; those that ask the same model may share its copies."""

    def __init__(
        self,
        state: RunState,
        options: ExecutionOptions,
        *,
        budget: Budget,
        memory: MemoryWatch,
        gate: Gate,
        memories: Memories,
        own_spec: Callable[[InferenceSpec], InferenceSpec],
        in_process: Callable[..., MakeProcess],
    ) -> None:
        """`own_spec` puts side inputs in place of their plans, `in_process` makes replicas in worker processes."""
        self._state, self._options, self._budget = state, options, budget
        self._memory, self._gate, self._memories = memory, gate, memories
        self._own_spec, self._in_process = own_spec, in_process
        self._copies: list[tuple[RunInference, OnError, Copies]] = []

    def stage_of(
        self,
        stage: Stage,
        outlet: Outlet,
        inbox: Channel,
        head: RunInference,
        *,
        name: str,
        make_steps: Callable[[], Task],
        journals: Sequence[Journal],
        placed: Placed | None,
    ) -> StageRun:
        """Return the stage; `journals` are those of the outputs behind it, `make_steps` is for steps behind it."""
        on_error: OnError = head.on_error or self._options.on_error
        versions = None if head.updates is None else Versions()
        recall = self._memories.recall_of(
            head, on_error=on_error, version=None if versions is None else lambda: versions.version
        )
        scales = Scales(head.spec, name)
        gathered: Any = recall
        if recall is None and (scales.padded or isinstance(head.spec.handler, KeyedModelHandler)):
            gathered = Gathering(head.spec, nulls=on_error == "null")
        # What is answered beside a failed row is kept, before the failure ends the run or is written as nulls.
        making = _Making(
            stage,
            head,
            name,
            on_error if gathered is None else "dead_letter",
            options=self._options,
            pause=self._state.pause,
            in_process=self._in_process,
            placed=placed,
        )
        common: dict[str, Any] = {
            "node": head,
            "name": name,
            "on_error": on_error,
            "gate": self._gate,
            "inbox_bytes": self._budget.model_inbox_bytes,
            "make_steps": make_steps,
            "scales": scales,
            "notes": Notes(journals, name, head.spec),
            "recall": gathered,
            "placed": placed,
        }
        place = (stage, self._state, outlet, inbox)
        if head.copies is not None and versions is None:
            return CopiedModelStage(*place, copies=self._copies_of(head, making), **common)
        if isinstance(head.spec.handler, KeyedModelHandler):
            return KeyedModelStage(
                *place,
                handler=head.spec.handler,
                make_model=lambda key, spec, number: making.task(self._own_spec(spec), f":{key}", number),
                in_processes=making.in_process,
                budget_bytes=models_bytes(head, self._options.memory_limit_bytes),
                shares=shares_of(head, placed, memory_limit_bytes=self._options.memory_limit_bytes),
                **common,
            )
        if versions is not None:
            return RefreshedModelStage(
                *place,
                versions=versions,
                make_task=lambda it, spec, number: making.task(self._own_spec(spec), f":{it.name}", number),
                memory=self._memory,
                budget_bytes=models_bytes(head, self._options.memory_limit_bytes),
                **common,
            )
        spec = self._own_spec(head.spec)
        return ModelStage(
            *place,
            shared_task=None if making.in_process else making.here(spec),
            make_process=making.processes(spec) if making.in_process else None,
            **common,
        )

    def _copies_of(self, node: RunInference, making: _Making) -> Copies:
        """Return the copies of a model: those of another step that asks the same one in the same way, or new ones."""
        for other, others, copies in self._copies:
            if others == making.on_error and same_model(node, other):
                return copies
        assert node.copies is not None
        copies = Copies(
            lambda number: making.task(self._own_spec(node.spec), f"#{number}", number),
            node.copies,
            exclusive=making.in_process,
            idle_secs=node.idle_timeout_secs,
        )
        self._copies.append((node, making.on_error, copies))
        return copies


class _Making:
    """How the tasks of one stage are made, here or in processes of their own."""

    def __init__(
        self,
        stage: Stage,
        head: RunInference,
        name: str,
        on_error: OnError,
        *,
        options: ExecutionOptions,
        pause: Callable[[float], None],
        in_process: Callable[..., MakeProcess],
        placed: Placed | None,
    ) -> None:
        self.on_error, self.in_process = on_error, stage.isolation == "process"
        self._name, self._pause = name, pause
        self._make = partial(PredictTask, stage=name, on_error=on_error, hopeless_rows=options.hopeless_rows)
        terms = Terms(name=name, retry=head.spec.retry, timeout_secs=head.spec.timeout_secs)
        self._start = partial(in_process, terms=[terms], share=head.copies or stage.replicas, placed=placed)

    def here(self, spec: InferenceSpec) -> PredictTask:
        return self._make(spec, pause=self._pause)

    def processes(self, spec: InferenceSpec) -> MakeProcess:
        return self._start(partial(self._make, spec, sent_at_once=True))

    def task(self, spec: InferenceSpec, label: str, number: int | None) -> Task:
        """Make a task where it belongs; a process is called by the label and, where models are placed, has a number."""
        return self.processes(spec)(f"{self._name}{label}", Crew(), number) if self.in_process else self.here(spec)
