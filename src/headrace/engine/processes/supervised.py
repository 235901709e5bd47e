"""A replica whose worker process is started again when it dies, until the rows that kill it are found."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.channel import Cancelled
from headrace.engine.processes.killers import Killers, Price
from headrace.engine.processes.suspects import Suspects
from headrace.engine.processes.terms import settled
from headrace.engine.processes.undelivered import Undelivered
from headrace.engine.task import StepCounts
from headrace.errors import WorkerCrashedError
from headrace.metrics.statistics import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.engine.processes.crew import Crew
    from headrace.engine.processes.replica import ProcessReplica
    from headrace.engine.processes.shared_blocks import Parcel
    from headrace.engine.processes.terms import Terms
    from headrace.records.block import Block

IDLE_DEATHS = 3
"""So many deaths one after another outside of any call (at the start, between blocks) end the run."""

_log = logging.getLogger("headrace.engine")


class SupervisedReplica:
    """Runs a task in a worker process, and in another one when that dies. Implements `Task`.

    The block at hand is worked on again from where it was. A call in which workers die twice, or which takes longer
    than its step allows, is not made again: the worker raises in its place, so that a batch is halved, and a row fails,
    as if its function had raised. If the kernel kills for want of memory, the crew becomes smaller first.
    """

    def __init__(
        self,
        make: Callable[[], ProcessReplica],
        *,
        terms: Sequence[Terms],
        crew: Crew,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make` makes a replica that is not open yet; `terms` are those of the task's steps, in their order."""
        self._make, self._terms, self._crew, self._pause, self._clock = make, tuple(terms), crew, pause, clock
        self._replica = make()
        self._stopped = False
        self._idle_deaths = 0
        self._killers = Killers()
        self._delivered = 0
        """Rows that have gone on."""
        self._start_secs = 0.0
        """How long the last worker took to start and to open its task."""
        self._past_counts: dict[str, StepCounts] = {}
        self._past_statistics: list[Any] = []
        self.restarts = 0
        self.out_of_memory = 0
        """How many of the restarts were for want of memory."""

    @property
    def pid(self) -> int | None:
        """The process id of the worker there is now."""
        return self._replica.pid

    def open(self) -> None:
        """Start the worker; one that dies before its task is open is started again a few times."""
        self._started()

    def process(self, block: Block) -> Iterator[Block]:
        """Work on a block, in as many workers as it takes.

        Raises:
            WorkerCrashedError: workers die, and not in a call of users' code.
            TooManyFailuresError: the first rows all kill their workers.
            Cancelled: `kill()` was called.
        """
        parcel, undelivered = self._replica.pack(block), Undelivered(block.start)
        del block
        try:
            yield from self._through(parcel, undelivered)
        finally:
            parcel.close()

    def _through(self, parcel: Parcel, undelivered: Undelivered) -> Iterator[Block]:
        suspects = Suspects()
        work: Block | Parcel = parcel
        kept, begun = self._replica.counts(), False
        while True:
            try:
                for piece in self._replica.process(work, suspects.sentences):
                    fresh = undelivered.take(piece)
                    del piece
                    counts = self._replica.counts()
                    if undelivered.at_whole_row and settled(self._terms, counts):
                        undelivered.settle()
                        kept, begun = counts, True
                    self._idle_deaths = 0
                    self._delivered += fresh.num_rows
                    yield fresh
                    del fresh
            except WorkerCrashedError as error:
                work = undelivered.rest_of(parcel.block())
                self._keep(kept, rows_left=work.num_rows if begun else 0)
                self._outlive(error, suspects, answered=suspects.sound_before(error.call, work.ordinal_array()))
                self._started()
                if work.start == work.end and not work.num_rows:
                    return  # it died with all that it had to give delivered
                kept, begun = {}, False
            else:
                return

    def counts(self) -> Mapping[str, StepCounts]:
        """Return the counts of all workers so far."""
        total = {name: replace(counts) for name, counts in self._past_counts.items()}
        for name, counts in self._replica.counts().items():
            total.setdefault(name, StepCounts()).add(counts)
        return total

    def statistics(self) -> Any:
        """Return what the tasks of all workers said after their last blocks; None where they have nothing to say."""
        known = [one for one in (*self._past_statistics, self._replica.statistics()) if one is not None]
        return merged(known) if known else None

    def progress(self) -> object:
        """Return what is different when the worker has begun or ended a call, or is another one."""
        return self.restarts, self._replica.mark()[0]

    def doing(self) -> str:
        """Say what the worker does."""
        _, call = self._replica.mark()
        where = f"is at work in its worker process (pid {self.pid})"
        if call is None:
            return where
        rows = f"row {call.first}" if call.rows == 1 else f"{call.rows} rows from row {call.first} on"
        return f"{where}, step {self._terms[call.step].name!r}, with {rows}"

    def close(self) -> None:
        """Close the task and end the worker."""
        self._replica.close()

    def kill(self) -> None:
        """End the worker for good, from any thread."""
        self._stopped = True
        self._replica.kill()

    # -- after a death ---------------------------------------------------------------------------------------------

    def _started(self) -> None:
        """Start the worker, again if it dies at that."""
        while True:
            began = self._clock()
            try:
                self._replica.open()
                self._start_secs = self._clock() - began
                return
            except WorkerCrashedError as error:
                self._outlive(error, Suspects())

    def _outlive(self, error: WorkerCrashedError, suspects: Suspects, *, answered: int = 0) -> None:
        """Find out what a worker died of, having `answered` some rows, and have another one ready to be started."""
        if self._stopped:
            raise Cancelled
        _log.warning("a worker is started again: %s", error)
        self._past_statistics.append(self._replica.statistics())
        dead, self._replica = self._replica, self._make()
        dead.close()
        if self._stopped:
            raise Cancelled  # `kill()` has seen either worker, but not both
        self.restarts += 1
        self.out_of_memory += error.out_of_memory
        if error.out_of_memory and self._crew.shrink():
            self._crew.wait_for_room()
        elif error.call is not None:
            self._blame(error, suspects, self._delivered + answered)
        else:
            self._idle_deaths += 1
            if self._idle_deaths >= IDLE_DEATHS:
                raise error

    def _blame(self, error: WorkerCrashedError, suspects: Suspects, succeeded: int) -> None:
        """Lay a death at the door of a call: it is made again after a pause, or not at all."""
        terms = self._terms[error.call.step]
        message = error.how
        if error.timed_out:
            message = f"took longer than timeout_secs={terms.timeout_secs:g}; its worker process was killed for it"
        sentence = suspects.died(error.call, message, timed_out=error.timed_out, retry=terms.retry)
        if sentence is None:
            if terms.retry is not None:
                self._pause(terms.retry.delay_secs(suspects.strikes(error.call), random.random()))
            return
        price = Price(self._start_secs, terms.timeout_secs if error.timed_out else None)
        if error.call.rows == 1:
            self._killers.failed(sentence.error())
            if self._killers.too_many(price, succeeded):
                raise self._killers.stop(terms.name, price, succeeded) from error
        elif price.dear and not succeeded:
            suspects.refuse_halves(error.call)

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _keep(self, counts: Mapping[str, StepCounts], *, rows_left: int) -> None:
        """Keep what a dead worker has counted of what is settled; the first step counts its rows when it gets them."""
        for number, (name, mine) in enumerate(counts.items()):
            taken = mine.rows_in - rows_left if number == 0 else mine.rows_in
            self._past_counts.setdefault(name, StepCounts()).add(replace(mine, rows_in=taken))
