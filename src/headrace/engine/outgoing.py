"""Answered rows on their way out of a model stage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.engine.join import joined

if TYPE_CHECKING:
    from headrace.engine.clock import StageClock
    from headrace.engine.stage_run import StageRun
    from headrace.engine.task import Task
    from headrace.records.block import Block

JOINED_BYTES = 256 * 2**10
"""Answered pieces of at most this size are joined; larger ones are not worth a copy."""
EMIT_SECS = 0.05
"""Answers are sent on at least this often, so that what is finished is soon durable, but not row by row."""


class Outgoing:
    """One replica's answered pieces on their way out: small neighbours are joined for a moment."""

    def __init__(self, stage: StageRun, steps: Task, clock: StageClock) -> None:
        self._stage, self._steps, self._clock = stage, steps, clock
        self._waiting: list[Block] = []
        self._since = 0.0

    def add(self, piece: Block) -> None:
        """Take a piece; send what waits when it is not its neighbour or has waited long enough."""
        large = piece.nbytes > JOINED_BYTES
        if self._waiting and (large or not _adjacent(self._waiting[-1], piece)):
            self.flush()
        if not self._waiting:
            self._since = time.perf_counter()
        self._waiting.append(piece)
        waited = time.perf_counter() - self._since
        if large or self._stage.outlet.settles or waited >= EMIT_SECS:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if not self._waiting:
            return
        block, self._waiting = joined(self._waiting), []
        for out in self._steps.process(block):
            self._stage.emit(out, self._clock)


def _adjacent(left: Block, right: Block) -> bool:
    return left.unit == right.unit and left.end == right.start and left.batch.schema.equals(right.batch.schema)
