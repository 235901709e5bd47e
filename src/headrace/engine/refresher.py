"""Changing the model of a stage while it runs: load, try, take over; or reject, and let the old one go on."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.engine.channel import Cancelled
from headrace.engine.identity import content_digest
from headrace.engine.memory import give_back, memory_of_tree, proportional_bytes
from headrace.engine.offers import Offer
from headrace.engine.predict import batch_of, exhausted_in, trial_of
from headrace.engine.versions import Generation
from headrace.errors import ModelError, ModelLoadError, WorkerCrashedError
from headrace.masking import masked
from headrace.metrics.statistics import ModelChange, UpdateStatistics, merged
from headrace.model.checks import run_check
from headrace.model.exhaustion import is_out_of_memory, release_memory
from headrace.model.versions import Version
from headrace.records.failure import text_of
from headrace.records.plain import array_of_numbers
from headrace.records.types import TypeQuarrelError, unify_types

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.engine.memory import MemoryWatch
    from headrace.engine.offers import Offers
    from headrace.engine.task import Task
    from headrace.engine.versions import Versions
    from headrace.metrics.statistics import ModelStatistics
    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block

KEPT_CHANGES = 1000
"""How many changes the statistics tell."""
END_SECS = 5.0
"""How long the end of a run waits for a version that is loading in this process."""

_log = logging.getLogger("headrace.model")


@dataclass(frozen=True, slots=True)
class _Sample:
    """A batch that was answered, and the types of its answers."""

    batch: Block
    answers: pa.Schema
    model_id: str


class Refresher:
    """Loads the first version, and tries those that are offered later, in a thread of its own."""

    def __init__(
        self,
        spec: InferenceSpec,
        *,
        name: str,
        offers: Offers,
        versions: Versions,
        make_task: Callable[[Version, InferenceSpec, int], Task],
        copies: int,
        exclusive: bool = False,
        memory: MemoryWatch,
        budget_bytes: int | None,
        pause: Callable[[float], None],
    ) -> None:
        """`make_task` makes the task of a version and a number, of which there are so many `copies`.

        `exclusive` ones answer one batch at a time.
        """
        self._spec, self._name, self._offers, self._versions = spec, name, offers, versions
        self._make_task, self._copies, self._exclusive = make_task, copies, exclusive
        self._memory, self._budget_bytes, self._pause = memory, budget_bytes, pause
        self._generations: list[Generation] = []
        """Those that are loaded, being loaded, or not unloaded yet."""
        self._past: ModelStatistics | None = None
        self._sample: _Sample | None = None
        self._changes: deque[ModelChange] = deque(maxlen=KEPT_CHANGES)
        self._switches = self._rejected = 0
        self._began = time.monotonic()
        self._came_back = threading.Event()
        """Whether a batch did: before that there is nothing that a version could be tried with."""
        self._trying = threading.Lock()
        self._stopped = threading.Event()

    # -- life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Load the newest version that will do, or else the handler's own model; then look after newer ones.

        Raises:
            ModelLoadError: the handler's own model cannot be loaded.
        """
        if not any(self._try(offer) for offer in self._offers.first(self._pause)):
            began = time.perf_counter()
            generation, _ = self._load(self._own(), None)
            self._take_over(generation, began=began)
        threading.Thread(target=self._run, name=f"{self._name} updates", daemon=True).start()

    def stop(self) -> None:
        """End all that is under way at once; from any thread."""
        self._stopped.set()
        self._came_back.set()
        self._versions.stop()
        for generation in list(self._generations):
            generation.kill()

    def close(self) -> None:
        """Unload everything; no batch is under way any more. A version that loads meanwhile comes too late."""
        self._stopped.set()
        self._came_back.set()
        self._versions.stop()
        for generation in list(self._generations):
            if generation is not self._versions.generation:
                generation.kill()
        ended = self._trying.acquire(timeout=END_SECS)
        for generation in list(self._generations):
            if ended or generation is self._versions.generation:
                self._discard(generation)
        if ended:
            self._trying.release()  # whoever waits for it with an offer finds that it is too late

    def answered(self, batch: Block, answers: Block) -> None:
        """Hear of a batch that came back: the next version is tried with the rows of it that were answered."""
        version = self._versions.version
        if answers.num_rows and not answers.errors and version is not None:
            if answers.failures:
                batch = batch_of([batch.batch.take(array_of_numbers(answers.ordinal_array()))], self._spec)
            self._sample = _Sample(batch, answers.batch.schema, version.model_id)
        self._came_back.set()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        """Return what is in memory."""
        return [task for generation in list(self._generations) for task in generation.tasks]

    def model_statistics(self) -> ModelStatistics | None:
        """Return what all versions did together."""
        known = [one for generation in list(self._generations) for one in generation.statistics()]
        if self._past is not None:
            known.append(self._past)
        return merged(known) if known else None

    def statistics(self) -> UpdateStatistics:
        """Return which version is in use, and what became of the others."""
        version = self._versions.version
        return UpdateStatistics(
            model_id=None if version is None else version.model_id,
            switches=self._switches,
            rejected=self._rejected,
            changes=tuple(self._changes),
        )

    # -- versions --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._came_back.wait()
        try:
            for offer in self._offers.later(self._stopped):
                with self._trying:
                    if self._stopped.is_set():
                        return
                    self._try(offer)
        except Cancelled:
            pass
        except Exception as error:
            if not self._stopped.is_set():
                self._reject("updates=", f"no more versions come: {type(error).__name__}: {text_of(error)}")

    def _try(self, offer: Offer) -> bool:
        """Have an offered version take over; say whether it has."""
        began = time.perf_counter()
        try:
            version = self._version_of(offer)
            if self._fits_beside(version):
                found = self._load_beside(version, offer)
            else:
                found = None
            drained = found is None
            generation, rows = found or self._load_alone(version, offer)
        except Exception as error:
            if self._stopped.is_set():
                raise Cancelled from error
            self._offers.refused(offer)
            self._reject(offer.name, text_of(error))
            return False
        old = None if drained else self._versions.generation
        self._take_over(generation, began=began, warm_up_rows=rows, drained=drained)
        self._offers.took(offer)
        if old is not None:
            self._versions.wait_until_idle(old)
            self._discard(old)
        return True

    def _take_over(self, generation: Generation, *, began: float, warm_up_rows: int = 0, drained: bool = False) -> None:
        first = self._versions.version is None
        rows_before = self._versions.use(generation)
        self._switches += not first
        self._changes.append(
            ModelChange(
                model_id=generation.version.model_id,
                rows_before=rows_before,
                at_secs=time.monotonic() - self._began,
                load_secs=time.perf_counter() - began,
                warm_up_rows=warm_up_rows,
                drained=drained and not first,
            )
        )
        _log.info("step %r: %s answers from row %d on", self._name, generation.version.model_id, rows_before)

    def _reject(self, name: str, why: str) -> None:
        version, name, why = self._versions.version, masked(name), masked(why)
        self._rejected += 1
        self._changes.append(
            ModelChange(
                model_id=name, rows_before=self._versions.rows, at_secs=time.monotonic() - self._began, rejected=why
            )
        )
        goes_on = f"{version.model_id} goes on" if version is not None else "another one is looked for"
        _log.warning("step %r: model %s is rejected, and %s: %s", self._name, name, goes_on, why)

    def _version_of(self, offer: Offer) -> Version:
        offer.check()
        handler = self._spec.handler.with_model(offer.path)
        run_check(handler, self._name)
        return Version(handler, offer.name, content_digest([offer.path], handler), offer.found)

    def _own(self) -> Version:
        handler = self._spec.handler
        return Version(handler, handler.model_id, content_digest(handler.model_files(), handler))

    # -- in and out ------------------------------------------------------------------------------------------------

    def _fits_beside(self, version: Version) -> bool:
        """Whether a version may be loaded while the one in use stays: one as large as it, or as its own files."""
        old = self._versions.generation
        if old is None:
            return True
        on_disk = 0 if version.found is None else version.found.nbytes
        needed = max(old.nbytes, self._copies * max(on_disk, version.handler.model_bytes or 0))
        if self._budget_bytes is not None and needed + old.nbytes > self._budget_bytes:
            return False
        if needed > self._memory.free_bytes():
            _give_back()
        return needed <= self._memory.free_bytes()

    def _load_beside(self, version: Version, offer: Offer) -> tuple[Generation, int] | None:
        """Load a version beside the one in use; None where memory does not suffice, as on a GPU one finds out."""
        try:
            return self._load(version, offer)
        except Exception as error:
            if self._versions.generation is None or not _for_want_of_memory(error):
                raise
        # Out here the error is gone, and with it the frames that hold what the load had allocated.
        return None

    def _load_alone(self, version: Version, offer: Offer) -> tuple[Generation, int]:
        """Load a version once the one in use has left; where that fails the old one comes back."""
        old = self._versions.drain()
        if old is not None:
            self._discard(old)
        _give_back()
        try:
            return self._load(version, offer)
        except BaseException as error:
            if old is not None and not isinstance(error, Cancelled):
                self._bring_back(old.version, error)
            raise

    def _bring_back(self, version: Version, cause: BaseException) -> None:
        offer = None if version.found is None else Offer(version.found.path, version.name, version.found)
        try:
            generation, _ = self._load(version, offer, trial=False)
        except Exception as error:
            failure = ModelLoadError(
                f"step {self._name!r}: another version of the model fails ({text_of(cause)}), and {version.model_id},"
                f" which had left for it since memory does not suffice for both, cannot be loaded again:"
                f" {text_of(error)}; give each version a name of its own, and run the job again to go on"
            )
            failure.__cause__ = error
            self._versions.fail(failure)
            return
        self._versions.use(generation)

    def _load(self, version: Version, offer: Offer | None, *, trial: bool = True) -> tuple[Generation, int]:
        """Load a version and try it; return it, and how many rows it was tried with."""
        spec = replace(self._spec, handler=version.handler, model_id=version.model_id)
        tasks = [self._make_task(version, spec, number) for number in range(self._copies)]
        generation = Generation(version, tasks, exclusive=self._exclusive)
        self._generations.append(generation)
        try:
            if self._stopped.is_set():
                raise Cancelled
            if offer is not None:
                offer.check()
            used = memory_of_tree([])
            generation.open()
            generation.nbytes = self._measured(generation, used)
            rows = self._warm_up(generation) if trial else 0
            if offer is not None:
                offer.check()
            if self._stopped.is_set():
                raise Cancelled
        except BaseException:
            self._discard(generation)
            raise
        return generation, rows

    def _measured(self, generation: Generation, used_before: int) -> int:
        declared = self._copies * (generation.version.handler.model_bytes or 0)
        pids = generation.pids()
        return max(declared, sum(map(proportional_bytes, pids)) if pids else memory_of_tree([]) - used_before)

    def _warm_up(self, generation: Generation) -> int:
        """Have each copy answer rows that an earlier version has answered."""
        sample = self._sample
        if sample is None:
            return 0
        for task in generation.tasks:
            (answered,) = task.process(trial_of(sample.batch))
            if answered.failures:
                failure = answered.failures[0]
                what = f"{sample.batch.num_rows:,} rows that {sample.model_id} answers"
                why = f"it fails on {what}: {failure.error_type}: {failure.message}"
                raise MemoryError(why) if exhausted_in(answered) else ModelError(why)
            _check_types(sample, answered.batch.schema)
        return sample.batch.num_rows

    def _discard(self, generation: Generation) -> None:
        """Unload a version, once."""
        if generation not in self._generations:
            return
        generation.close()
        done = generation.statistics()
        if self._past is not None:
            done.append(self._past)
        self._generations.remove(generation)
        self._past = merged(done) if done else None


def _check_types(sample: _Sample, answers: pa.Schema) -> None:
    """Raise where answers are of another kind than those before: they go to the same columns."""
    for field in sample.answers:
        if field.name not in answers.names:
            continue
        try:
            unify_types(field.type, answers.field(field.name).type, field.name)
        except TypeQuarrelError as error:
            raise ModelError(
                f"its answers in column {field.name!r} are {error.right}, and those of {sample.model_id} are"
                f" {error.left}; they go to the same column"
            ) from error


def _give_back() -> None:
    """Free what models left behind: cycles, caches of frameworks, pages of the allocator. Everybody waits meanwhile."""
    release_memory()
    give_back()


def _for_want_of_memory(error: BaseException) -> bool:
    return is_out_of_memory(error) or (isinstance(error, WorkerCrashedError) and error.out_of_memory)
