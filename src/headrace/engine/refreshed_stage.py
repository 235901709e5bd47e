"""Model stages whose model changes while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.model_stage import ModelStage, answered_by
from headrace.engine.offers import offers_of
from headrace.engine.refresher import Refresher

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine.clock import StageClock
    from headrace.engine.memory import MemoryWatch
    from headrace.engine.open_blocks import Cut
    from headrace.engine.outgoing import Outgoing
    from headrace.engine.task import Task
    from headrace.engine.versions import Versions
    from headrace.metrics.statistics import ModelStatistics, UpdateStatistics
    from headrace.model.versions import Version
    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block


class RefreshedModelStage(ModelStage):
    """Has each batch answered by the version that is in use when it begins."""

    def __init__(
        self,
        *stage: Any,
        versions: Versions,
        make_task: Callable[[Version, InferenceSpec, int], Task],
        memory: MemoryWatch,
        budget_bytes: int | None,
        **settings: Any,
    ) -> None:
        """`make_task` makes the task of a version and a number: as many as were asked for, else one for all replicas,
        or in processes one for each.
        """
        super().__init__(*stage, shared_task=None, make_process=None, **settings)
        self._versions = versions
        in_processes = self.stage.isolation == "process"
        assert self._node.updates is not None
        self._refresher = Refresher(
            self._node.spec,
            name=self._name,
            offers=offers_of(self._node.updates),
            versions=versions,
            make_task=make_task,
            copies=self._node.copies or (self.stage.replicas if in_processes else 1),
            exclusive=in_processes,
            memory=memory,
            budget_bytes=budget_bytes,
            pause=self.state.pause,
        )
        self._begun = False
        self._awaited = not in_processes
        """Whether others in this process wait until the first version is there."""
        self.state.on_stop(self._refresher.stop)
        if self._awaited:
            self.state.model_expected()

    def _take_in(self, block: Block | None, outgoing: Outgoing) -> None:
        if block is not None and block.num_rows and not self._begun:
            # Before the first rows are looked up among answers that are kept: those are kept by version.
            self._refresher.begin()
            self._begun = True
            if self._awaited:
                self.state.model_loaded()
            self._read_ahead_no_more()
        super()._take_in(block, outgoing)

    def _ask(self, number: int, cut: Cut, batch: Block, clock: StageClock) -> tuple[Block, float]:
        with self._versions.lease(number, batch.num_rows) as task:
            clock.task = task
            try:
                answered, seconds = answered_by(task, batch)
            finally:
                clock.task = None
            self._refresher.answered(batch, answered)
        return answered, seconds

    def _close_models(self) -> None:
        self._refresher.close()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _models_done(self) -> ModelStatistics | None:
        return self._refresher.model_statistics()

    def update_statistics(self) -> UpdateStatistics:
        """Return which versions the model had."""
        return self._refresher.statistics()

    def tasks(self) -> list[Task]:
        """Return the versions in memory."""
        return self._refresher.tasks()
