"""Model stages: rows of many blocks go into batches of the model's size, and come back to their blocks."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.loads import Loads
from headrace.engine.open_blocks import OpenBlocks
from headrace.engine.outgoing import Outgoing
from headrace.engine.predict import batch_of, exhausted_in
from headrace.engine.recall import Recall
from headrace.engine.stage_run import LOOK_SECS, StageRun
from headrace.engine.task import StepCounts
from headrace.engine.user_batches import with_column
from headrace.errors import StageError
from headrace.metrics.statistics import merged
from headrace.model.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from headrace.engine.channel import Channel, Gate
    from headrace.engine.clock import StageClock
    from headrace.engine.gathering import Gathering
    from headrace.engine.notes import Notes
    from headrace.engine.open_blocks import Cut
    from headrace.engine.outlet import Outlet
    from headrace.engine.predict import PredictTask
    from headrace.engine.processes.crew import Member
    from headrace.engine.processes.supervised import SupervisedReplica
    from headrace.engine.state import RunState
    from headrace.engine.task import Task
    from headrace.metrics.statistics import Loading, ModelStatistics, RecallStatistics
    from headrace.model.batch import Batch
    from headrace.model.keyed_batching import KeyedBatcher
    from headrace.model.placement import Placed
    from headrace.model.scales import Scales
    from headrace.plan.nodes import RunInference
    from headrace.plan.stages import Stage
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure

NOTE_SECS = 1.0
"""Sizes are noted for a later run at most this often, and not in jobs that are shorter."""


class ModelStage(StageRun):
    """Batches rows across blocks, runs the model, and sends each row on under its own identity."""

    def __init__(
        self,
        stage: Stage,
        state: RunState,
        outlet: Outlet,
        inbox: Channel,
        *,
        node: RunInference,
        name: str,
        on_error: str,
        gate: Gate,
        inbox_bytes: int,
        shared_task: PredictTask | None,
        make_process: Callable[..., SupervisedReplica] | None,
        make_steps: Callable[[], Task],
        scales: Scales,
        notes: Notes,
        recall: Recall | Gathering | None = None,
        placed: Placed | None = None,
    ) -> None:
        """`recall` takes answers that come out of order, as they do where rows are sorted; None: none do."""
        super().__init__(stage, state, outlet, inbox)
        self._node, self._name, self._on_error, self._gate = node, name, on_error, gate
        self._inbox_bytes = inbox_bytes
        """The inbox's budget once the model is there."""
        self._scales = scales
        self._batcher = self._make_batcher(notes)
        self._notes, self._noted, self._note_after = notes, 0, time.monotonic() + NOTE_SECS
        self._admission = threading.Lock()
        self._observed: deque[tuple[str | None, float, float | None]] = deque()
        """Keys and weights of batches with the seconds taken, None where memory ran out; for whoever asks the batcher
        next."""
        self._open = OpenBlocks(node.spec, recall)
        self._opened = 0
        self._ended = False
        self._task = shared_task
        self._make_process = make_process
        self._models: list[PredictTask | SupervisedReplica] = [] if shared_task is None else [shared_task]
        self._of_replica: dict[int, Task] = {}
        """The task of each replica that has one."""
        self._make_steps = make_steps
        self._loading = threading.Lock()
        self._loads = Loads()
        self._loaded = False
        self._users = self._replicas = stage.replicas
        self._recall, self._placed = recall, placed
        self._row_counts = StepCounts() if recall is None else recall.counts
        if shared_task is not None:
            state.model_expected()

    def work(self, number: int, clock: StageClock) -> None:
        """Take batches until the input ends, or the replica has to leave its crew."""
        if self._make_process is None:
            self._work(number, clock, None)
            return
        with self._crew.membership() as member:
            self._work(number, clock, member)

    def _work(self, number: int, clock: StageClock, member: Member | None) -> None:
        steps = self._make_steps()
        with self._lock:
            self._tasks.append(steps)
        outgoing = Outgoing(self, steps, clock)
        try:
            steps.open()
            with self._share_of_cores():
                self._answer_all(number, outgoing, clock, member)
            outgoing.flush()
        finally:
            self._release(number)
            steps.close()

    def _share_of_cores(self) -> AbstractContextManager[None]:
        """Keep this replica's calls to its share of the cores, where several are made at once in this process."""
        if self._node.isolation == "process" or self._replicas == 1:
            return nullcontext()
        return self._node.spec.handler.sharing_cores(self._replicas)

    def _answer_all(self, number: int, outgoing: Outgoing, clock: StageClock, member: Member | None) -> None:
        while (batch := self._next(clock, outgoing, member)) is not None:
            self._answer(number, batch, outgoing, clock)
            del batch  # it may be large, and is done with

    # -- rows in ---------------------------------------------------------------------------------------------------

    def _next(self, clock: StageClock, outgoing: Outgoing, member: Member | None) -> Cut | None:
        """Return the next batch; None where there is none for this replica. One replica at a time waits for rows."""
        if not self._admission.acquire(blocking=False):
            outgoing.flush()
            with clock.starving():
                while not self._admission.acquire(timeout=-1 if member is None else LOOK_SECS):
                    if member is not None and member.dismissed():
                        return None
        try:
            while member is None or not member.dismissed():
                now = time.monotonic()
                self._learn(now)
                flush = self._ended or self._full_in_front()
                if not flush and self._batcher.has_room and self._admit(clock, outgoing, 0.0):
                    continue
                if (batch := self._batcher.take(now, flush=flush)) is not None:
                    return self._cut(batch)
                if self._ended:
                    return None
                outgoing.flush()
                self._admit(clock, outgoing, self._patience_secs(now, None if member is None else LOOK_SECS))
            return None
        finally:
            self._admission.release()

    def _learn(self, now: float) -> None:
        """Tell the batcher what batches have cost, and note it where sizes change for that."""
        if not self._observed:
            return
        while self._observed:
            key, weight, seconds = self._observed.popleft()
            if seconds is None:
                self._batcher_of(key).exhausted(weight)
            else:
                self._batcher_of(key).observe(weight, seconds)
        if not isinstance(self._batcher, Batcher):
            return
        size = round(2 * log2(self._batcher.target_rows or 1))
        if size != self._noted and now >= self._note_after:
            self._noted, self._note_after = size, now + NOTE_SECS
            self._notes.write(self._batcher.learnt())

    def _full_in_front(self) -> bool:
        """Whether no more rows can come before some of those that are here go on."""
        if self._recall is not None and self._recall.held_bytes > self._inbox_bytes:
            return True
        return self._gate.closed and self.inbox is not None and self.inbox.fill() == 0

    def _patience_secs(self, now: float, longest_secs: float | None) -> float | None:
        """Return how long to wait for a block; None: for ever."""
        due = self._batcher.wait_until(now)
        timeout = None if due is None else max(0.0, due - now)
        if self._gate.closed or (self._batcher.waiting_rows and timeout is None):
            timeout = min(0.05, timeout) if timeout is not None else 0.05
        if longest_secs is not None:
            timeout = longest_secs if timeout is None else min(timeout, longest_secs)
        return timeout

    def _admit(self, clock: StageClock, outgoing: Outgoing, timeout_secs: float | None) -> bool:
        """Take one block in, or note that there are no more; say whether either came in time."""
        try:
            self._take_in(self.receive(clock, timeout_secs), outgoing)
        except TimeoutError:
            return False
        finally:
            if self.outlet.unwanted and self.inbox is not None:
                self.inbox.discard()
        return True

    def _take_in(self, block: Block | None, outgoing: Outgoing) -> None:
        if block is None:
            self._ended = True
            return
        if block.num_rows == 0:
            # A call for no rows is never made; the block passes for its cover and its failures.
            outgoing.add(self._unanswered(block))
            return
        self._opened += 1
        self._row_counts.rows_in += block.num_rows
        if self._recall is not None:
            asked, ready = self._recall.admit(self._opened, block)
            for piece in ready:
                outgoing.add(piece)
            if asked is None:
                return
            block = asked
        self._open.add(self._opened, block)
        self._add_rows(self._opened, block)

    def _make_batcher(self, notes: Notes) -> Batcher | KeyedBatcher:
        return Batcher(self._node.spec.limits, padded=self._scales.padded, learnt=notes.read())

    def _batcher_of(self, key: str | None) -> Batcher:
        """Return what has cut the batches of a model."""
        assert isinstance(self._batcher, Batcher)
        return self._batcher

    def _add_rows(self, number: int, block: Block) -> None:
        """Have the batcher know of a block's rows."""
        self._batcher_of(None).add(number, block.num_rows, time.monotonic(), self._scales.weights(block.batch))

    def _cut(self, batch: Batch) -> Cut:
        return self._open.cut(batch)

    def _unanswered(self, block: Block) -> Block:
        if not block.batch.schema.names:
            return block
        spec = self._node.spec
        names = [spec.output] if isinstance(spec.output, str) else list(spec.output.values())
        batch = block.batch
        for name in names:
            if name not in batch.schema.names:
                batch = with_column(batch, name, pa.nulls(0))
        if spec.model_id_column is not None:
            batch = with_column(batch, spec.model_id_column, pa.array([], pa.dictionary(pa.int32(), pa.string())))
        return block.with_batch(batch)

    # -- the model -------------------------------------------------------------------------------------------------

    def _loaded_task(self, number: int) -> Task:
        """Return this replica's task with its model loaded; threads share one, and wait while it loads."""
        if self._make_process is not None:
            task = self._make_process(f"{self._name}#{number}", self._crew, number)
            self._models.append(task)
            with self._loads.noted(self._node.spec.handler.model_id):
                task.open()
            self._read_ahead_no_more()
            return task
        assert self._task is not None
        with self._loading:
            if not self._loaded:
                with self._loads.noted(self._node.spec.handler.model_id):
                    self._task.open()
                self._loaded = True
                self.state.model_loaded()
                self._read_ahead_no_more()
        return self._task

    def _read_ahead_no_more(self) -> None:
        assert self.inbox is not None
        self.inbox.budget_bytes = self._inbox_bytes

    def _release(self, number: int) -> None:
        """Let a replica's model go, or that of all with the last of them."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        task = self._of_replica.pop(number, None)
        if task is not None and task is not self._task:
            task.close()
        elif last:
            self._close_models()

    def _close_models(self) -> None:
        if self._task is not None:
            self._task.close()

    def _ask(self, number: int, cut: Cut, batch: Block, clock: StageClock) -> tuple[Block, float]:
        """Put a batch to its model; return what it answered, and in how many seconds."""
        task = self._of_replica.get(number)
        if task is None:
            task = clock.task = self._of_replica[number] = self._loaded_task(number)
        return answered_by(task, batch)

    def _answer(self, number: int, cut: Cut, outgoing: Outgoing, clock: StageClock) -> None:
        """Run one batch and send its rows on."""
        batch = batch_of([share.piece.batch for share in cut.shares], self._node.spec)
        answered, seconds = self._ask(number, cut, batch, clock)
        if exhausted := exhausted_in(answered):
            self._observed.extend((cut.key, cut.weight * rows / batch.num_rows, None) for rows in exhausted)
            answered = answered.with_batch(answered.batch.replace_schema_metadata(None))
        elif not answered.failures:
            self._observed.append((cut.key, cut.weight, seconds))
        settled = self._open.settled(cut.shares, answered)
        if answered.failures and self._on_error == "fail":
            if self._recall is not None:
                list(settled)  # what was answered beside the failure is paid for
            raise self._stop(answered.failures[0], cut)
        for piece in settled:
            outgoing.add(piece)
        with self._lock:
            self._row_counts.seconds += seconds
            if self._recall is None:
                self._row_counts.rows_out += answered.num_rows
                self._row_counts.failed += len(answered.failures)
                self._row_counts.with_error += answered.errors

    def _stop(self, failure: RowFailure, cut: Cut) -> StageError:
        return StageError(
            f"step {self._name!r} failed on {cut.place_of(failure)} ({failure.error_type}: {failure.message}); "
            "pass on_error='dead_letter' to set such rows aside and go on"
        )

    # -- numbers ---------------------------------------------------------------------------------------------------

    def step_counts(self) -> Mapping[str, StepCounts]:
        """Return the model's rows, then those of the steps behind it."""
        model = self.model_statistics()
        return {
            self._name: replace(self._row_counts, retried=model.retried if model else 0),
            **super().step_counts(),
        }

    def model_statistics(self) -> ModelStatistics | None:
        """Return the model's numbers and the size that the batcher aims at."""
        done = self._models_done()
        if done is None:
            return None
        cut = self._batcher.statistics()
        return replace(
            done,
            target_batch_rows=cut.target_rows,
            mean_batch_weight=cut.weight / cut.batches if cut.batches else 0.0,
            padding=1 - cut.real_weight / cut.weight if cut.weight else 0.0,
            placed_on=done.placed_on if self._placed is None else self._placed.told(done.placed_on),
        )

    def _models_done(self) -> ModelStatistics | None:
        """Return what the copies of the model did, as far as they have said."""
        known = [found for model in list(self._models) if (found := model.statistics()) is not None]
        return merged(known) if known else None

    def loading(self) -> tuple[Loading, ...]:
        """Return whether the model, or a copy of it, is being loaded."""
        return self._loads.statistics()

    def recall_statistics(self) -> RecallStatistics | None:
        """Return what was answered from memory where the stage has one."""
        return self._recall.statistics() if isinstance(self._recall, Recall) else None

    def time_limits(self) -> list[float]:
        """Return the model's limit, and those of the steps behind it."""
        limit = self._node.spec.timeout_secs
        return [*super().time_limits(), *([] if limit is None else [limit])]

    def tasks(self) -> list[Task]:
        """Return the copies of the model."""
        return list(self._models)


def answered_by(task: Task, batch: Block) -> tuple[Block, float]:
    """Have a task answer a batch; return the answers, and the seconds that it took."""
    started = time.perf_counter()
    (answered,) = task.process(batch)
    return answered, time.perf_counter() - started
