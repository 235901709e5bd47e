"""Model stages whose threads share copies of the model, with each other and with other stages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.model_stage import ModelStage, answered_by

if TYPE_CHECKING:
    from headrace.engine.clock import StageClock
    from headrace.engine.copies import Copies
    from headrace.engine.open_blocks import Cut
    from headrace.engine.task import Task
    from headrace.metrics.statistics import ModelStatistics
    from headrace.records.block import Block


class CopiedModelStage(ModelStage):
    """Leases a copy for each batch."""

    def __init__(self, *stage: Any, copies: Copies, **settings: Any) -> None:
        """`copies` may be used by other stages too."""
        super().__init__(*stage, shared_task=None, make_process=None, **settings)
        self._copies = copies
        self._first = copies.join()

    def _ask(self, number: int, cut: Cut, batch: Block, clock: StageClock) -> tuple[Block, float]:
        try:
            with self._copies.lease(self._loads.noted(self._node.spec.handler.model_id)) as task:
                self._read_ahead_no_more()
                clock.task = task
                answered, seconds = answered_by(task, batch)
        finally:
            clock.task = None
        # The task may have been made for another stage.
        failures = tuple(replace(failure, stage=self._name) for failure in answered.failures)
        return replace(answered, failures=failures), seconds

    def _close_models(self) -> None:
        self._copies.leave()

    def _models_done(self) -> ModelStatistics | None:
        """Return what the copies did; where stages share them, the first of them tells."""
        return self._copies.statistics() if self._first else None

    def tasks(self) -> list[Task]:
        """Return the copies in memory."""
        return self._copies.tasks()
