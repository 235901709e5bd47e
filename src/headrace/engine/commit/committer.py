"""The committer: takes blocks in any order and publishes their rows, once each, in the order of the input.

A block goes through `Arrivals` (order), `Holdings` (memory and segments) and a `Part`, which is encoded while it fills.
Full parts are prepared, entered in the journal (this is the commit) and published by `PartThreads`; a `Flusher` saves
what waits. See docs/architecture.md.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headrace.engine.budget import BACKLOG_BYTES, COMMITTER_BYTES
from headrace.engine.commit.arrivals import Arrivals
from headrace.engine.commit.claim import Claim
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.encoder import Encoder
from headrace.engine.commit.entries import Totals
from headrace.engine.commit.failures import FailureLimit, Failures
from headrace.engine.commit.filling import Filling
from headrace.engine.commit.fitting import Fitting
from headrace.engine.commit.flusher import Flusher
from headrace.engine.commit.holdings import Holdings
from headrace.engine.commit.home import DEAD_LETTERS
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.opening import open_output, something_finished
from headrace.engine.commit.part import Part
from headrace.engine.commit.part_threads import PartThreads
from headrace.engine.commit.piece import Piece
from headrace.engine.commit.publisher import Publisher
from headrace.engine.commit.sizing import Sizing
from headrace.engine.commit.trouble import Trouble
from headrace.errors import BalanceError, HeadraceError, SinkError
from headrace.metrics.statistics import SinkStatistics
from headrace.records.block import Block
from headrace.records.columns import empty_columns
from headrace.records.first_rows import HOPELESS_ROWS
from headrace.records.position import END, START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.engine.commit.dead_letters import DeadLetters, LettersFormat
    from headrace.engine.commit.disk_budget import DiskBudget
    from headrace.engine.commit.done import Done
    from headrace.engine.commit.entries import SplitRecord
    from headrace.engine.commit.opening import Choose
    from headrace.engine.commit.retrying import Retrying
    from headrace.records.block import Unit
    from headrace.sinks.sink import Sink


class Committer:
    """Commits one sink's rows. All methods may be called from any thread; `open` first, `finish` or `abort` last.

    Raises:
        OutputExistsError: on `open`, the output holds what is not this job's.
        ResumeError: on `open`, the output is another job's or damaged.
        SinkError: the output cannot be written; every later call raises it too.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        identity: JobIdentity,
        units: Sequence[Unit] = (),
        if_exists: Literal["resume", "overwrite", "fail"] = "resume",
        dead_letters: str | None = None,
        dead_letters_format: LettersFormat = "json",
        failures: Failures | None = None,
        choose: Choose | None = None,
        fails_as: str | None = None,
        target_part_bytes: int | None = None,
        rows_per_part: int | None = None,
        memory_budget_bytes: int = COMMITTER_BYTES,
        backlog_bytes: int = BACKLOG_BYTES,
        disk: DiskBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._identity = JobIdentity({**identity.components, "output format": type(sink).__name__}, identity.unknown)
        self._units = units
        self._sizing = Sizing(sink, target_part_bytes=target_part_bytes, rows_per_part=rows_per_part)
        self._budget_bytes = memory_budget_bytes
        self._most_backlog_bytes, self._disk = backlog_bytes, disk
        self._clock = clock
        folder = sink.folder
        if dead_letters is None and folder is not None:
            dead_letters = f"{folder.rstrip('/')}/{DEAD_LETTERS}"
        self._dead_letters, self._letters_format = dead_letters, dead_letters_format
        self._failures = failures or Failures(FailureLimit())
        self._choose = choose
        self.claim = Claim(
            sink, self._identity, if_exists=if_exists, dead_letters=dead_letters, retry=choose is not None
        )
        self._fitting = Fitting(
            sink,
            self._failures,
            stage=fails_as if dead_letters is not None else None,
            hopeless_rows=HOPELESS_ROWS if choose is None else math.inf,
        )
        self.retrying: Retrying | None = None
        """The failed rows that are run again; None when this is no retry."""

        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        """Notified when parts are prepared or committed, and at errors."""
        self._trouble = Trouble(self._changed)
        self._opened = self._was_opened = False
        self._before = Totals()

    @property
    def name(self) -> str:
        """What messages call the output."""
        return self._sink.name

    def open(self, units: Sequence[Unit] | None = None, *, closed: Iterable[int] = ()) -> None:
        """Mend what a crash left, and begin to take blocks of `units`; claims the output if that has not been done.

        Splits that are `closed` are not read again: what is not finished of them is given up.
        """
        if not self.claim.taken:
            self.claim.take()
        self._units = self._units if units is None else units
        try:
            opened = open_output(
                self._sink,
                self.claim.home,
                self.claim.journal,
                self._identity,
                self._units,
                self._dead_letters,
                letters_format=self._letters_format,
                choose=self._choose,
                disk=self._disk,
            )
        except BaseException:
            self.claim.let_go()
            raise
        self._segments, self._before, self.retrying = opened.segments, opened.before, opened.retrying
        self._dead_letters = opened.letters.path if opened.letters is not None else None
        shut = set(closed)
        given_up = [unit for unit in self._units if unit.split in shut]
        self._done = opened.done.closing(given_up)
        self._set_up(opened.letters)
        self._start_threads()
        self._opened = self._was_opened = True
        try:
            with self._mutex:
                self._failures.begin(self._before, finished=self._done.everything)
                for piece in opened.recovered:
                    self._arrange(piece)
                self._fitting.failed = 0  # those among recovered rows are no rows of this run
                for unit in given_up:
                    self._give_up(unit, opened.done)
        except BaseException:
            self.abort()
            raise

    def _set_up(self, letters: DeadLetters | None) -> None:
        """Make what blocks pass through, from the last to the first."""
        home, journal, retrying = self.claim.home, self.claim.journal, self.retrying
        self._holdings = Holdings(self._segments, budget_bytes=self._budget_bytes)
        self._flusher = Flusher(
            self._holdings, self._sizing, mutex=self._mutex, clock=self._clock, trouble=self._trouble
        )
        self._encoder = Encoder(
            self._sink,
            self._holdings,
            home.staging,
            self._changed,
            fills_soon=self._flusher.fills_soon,
            retrying=retrying,
            stage=lambda receipt: home.stage(receipt, self._sink.folder or ""),
        )
        self._publisher = Publisher(self._sink, home, journal, letters, retries=retrying is not None)
        self._threads = PartThreads(
            self._sink.name,
            self._encoder,
            self._publisher,
            self._holdings,
            self._sizing,
            changed=self._changed,
            trouble=self._trouble,
        )
        self._filling = Filling(
            self._sink,
            self._sizing,
            self._fitting,
            self._holdings,
            schema=journal.schema,
            next_number=self._publisher.totals.parts,
            wants=self._encoder.wants,
            start=self._threads.start,
        )
        units = self._units if retrying is None else [unit for unit in self._units if unit.split in retrying.splits]
        self._arrivals = Arrivals(units, frontier=journal.frontier if units else None)

    def _start_threads(self) -> None:
        self._threads.watch(self._filling)
        self._flusher.start(self._filling)
        self._mirror = self.claim.home.mirror(
            self.claim.journal, self._segments, mutex=self._mutex, fail=self._trouble.tell
        )
        if self._mirror is not None:
            self._mirror.start()

    def _give_up(self, unit: Unit, done: Done) -> None:
        """Take nothing for what is missing of a unit, so that what comes behind can follow."""
        whole = Block(batch=empty_columns(0), unit=unit, start=START, end=END)
        for gap in done.missing(whole):
            self._arrange(Piece.of(gap, now=self._clock()))

    @property
    def done(self) -> Done:
        """What earlier runs have finished."""
        return self._done

    def record_splits(self, splits: Iterable[SplitRecord]) -> None:
        """Keep what is known of splits in the journal."""
        self.claim.journal.record_splits(splits)

    def splits(self) -> list[SplitRecord]:
        """Return the splits that this run and earlier ones recorded."""
        return self.claim.journal.splits()

    def put(self, block: Block) -> None:
        """Take a block, in any order; blocks while parts are encoded more slowly than they fill.

        Raises:
            BalanceError: its range has been delivered before.
            TooManyFailuresError: more rows have failed than the limit allows.
            SinkError: the output cannot be written, or the types of its columns do not go with the earlier rows'.
        """
        if self._dead_letters is None and not all(failure.elsewhere for failure in block.failures):
            raise SinkError(f"{self._sink.name}: rows have failed and there is no folder for them; pass dead_letters=")
        with self._mutex:
            self._trouble.check()
            if block.start >= block.end:
                assert block.num_rows + len(block.failures) == 0, block
                return
            try:
                piece = Piece.of(block, now=self._clock())
                self._failures.add(block.failures, rows=block.num_rows, nulled=block.errors)
                self._arrange(piece)
                self._failures.check()
                self._holdings.make_room()
                self._flusher.arrived(piece, ending=self._arrivals.complete)
            except HeadraceError as error:
                self._trouble.tell(error)
                raise
            self._changed.wait_for(
                lambda: self._trouble.error or self._filling.backlog_bytes <= self._most_backlog_bytes
            )
            self._trouble.check()

    @property
    def waits_for(self) -> int | None:
        """The split whose rows have to come before others can leave a disk that they fill; None where there is room."""
        return self._arrivals.needed_split if self._segments.tight else None

    def finish(self, *, schema: pa.Schema | None = None, hopeless: bool = False) -> None:
        """Publish the rest and mark the job done; `schema` is for an output without any row.

        `hopeless` says that every row failed: the dead letters stay to be looked at, and the next run begins afresh.

        Raises:
            BalanceError: not every unit has been delivered to its end.
            SinkError: the output cannot be written.
        """
        if self._done.everything:
            self._stop_threads()
            self._segments.remove_all()
            self.claim.home.clear_work()
            self._close()
            return
        with self._mutex:
            self._trouble.check()
            if not self._arrivals.complete or self._arrivals.waiting():
                raise BalanceError(
                    f"{self._sink.name}: the run ended without {self._arrivals.missing()};"
                    " this is a bug in Headrace, please report it"
                )
            self._failures.check(at_end=True)
            self._filling.close()
            self._changed.wait_for(lambda: self._trouble.error or not self._filling.closed)
            self._trouble.check()
        self._stop_threads()
        if self._publisher.totals.parts == 0 and not hopeless:
            self._write_empty_part(schema or self._filling.schema or self._filling.empty_schema or pa.schema([]))
        if self._filling.schema is not None:
            self._publisher.widen(self._filling.schema)
        crash_point("finish.before")
        if self.retrying is None:
            self.claim.journal.finish(hopeless=hopeless)
        else:
            self._publisher.finish_retry()
        crash_point("finish.marked")
        self._segments.remove_all()
        self.claim.home.clear_work()
        crash_point("finish.cleaned")
        self._close()

    def abort(self) -> None:
        """Make durable what is complete, discard what is not, and close; raises nothing."""
        if not self._opened:
            if self.claim.taken:
                self.claim.let_go()
            return
        with self._mutex:
            if self._filling.part is not None and self._filling.part.spent:
                self._filling.close()
            self._changed.wait_for(lambda: self._trouble.error or self._filling.all_prepared)
        self._stop_threads()
        self._threads.commit_prepared()
        with suppress(HeadraceError):
            self._holdings.save()
            if self._mirror is not None:
                self._mirror.sync()
        self._filling.discard()
        with suppress(HeadraceError):
            if not something_finished(self.claim.home, self.claim.journal):
                self.claim.home.vanish()
        self._close()

    def flush(self) -> None:
        """Write rows that have waited too long to a segment. Done by a thread of its own, and by tests."""
        self._flusher.flush()

    def statistics(self) -> SinkStatistics:
        """Return what the sink holds; rows count once they are committed."""
        with self._mutex:
            totals, before = self._publisher.totals if self._was_opened else self._before, self._before
            waiting = self._holdings.saved_rows if self._was_opened else 0
        return SinkStatistics(
            name=self._sink.name,
            folder=self._sink.folder,
            rows=max(totals.rows, before.rows),
            rows_before=before.rows,
            rows_saved=max(totals.rows + waiting, before.rows),
            with_error=max(totals.with_error, before.with_error),
            parts=totals.parts,
            nbytes=totals.nbytes,
            failed=self._fitting.failed,
            dead_letters=max(totals.dead_letters, before.dead_letters),
            dead_letters_before=before.dead_letters,
            dead_letters_folder=self._dead_letters,
        )

    # --- order: under the mutex ---------------------------------------------------------------------------------------

    def _arrange(self, piece: Piece) -> None:
        ready = self._arrivals.add(piece)
        self._holdings.take(piece)
        for next_piece in ready:
            self._filling.append(next_piece)

    def _write_empty_part(self, schema: pa.Schema) -> None:
        self._sink.check(schema)
        part = Part(number=0, schema=schema, closed=True, busy=True)
        self._encoder.run(part)
        self._encoder.seal(part)
        self._publisher.commit([part])

    def _stop_threads(self) -> None:
        self._flusher.stop()
        self._threads.stop()
        if self._mirror is not None:
            self._mirror.stop()

    def _close(self) -> None:
        self._stop_threads()
        self._segments.close()
        self.claim.close()
        self._opened = False
