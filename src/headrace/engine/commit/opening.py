"""Opening an output: whose it is, what a crash left, and what is done."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.dead_letters import DeadLetters, format_of
from headrace.engine.commit.done import Done, joined
from headrace.engine.commit.entries import Totals
from headrace.engine.commit.home import OUR_LETTERS, Home
from headrace.engine.commit.identity import AFRESH, check_same_job, check_same_sources
from headrace.engine.commit.piece import Piece
from headrace.engine.commit.publisher import settle_letters
from headrace.engine.commit.retrying import RetriedRow, Retrying
from headrace.engine.commit.segments import heads, rows_beyond
from headrace.errors import OutputExistsError, ResumeError
from headrace.records.block import Unit
from headrace.records.position import END
from headrace.sinks.folder import PartReceipt, local_path, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.engine.commit.dead_letters import LettersFormat
    from headrace.engine.commit.disk_budget import DiskBudget
    from headrace.engine.commit.done import Range
    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.identity import JobIdentity
    from headrace.engine.commit.input_status import Progress
    from headrace.engine.commit.journal import Journal
    from headrace.engine.commit.remote_home import RemoteHome
    from headrace.engine.commit.segments import Segments
    from headrace.sinks.sink import Sink

    Choose: TypeAlias = Callable[[Sequence[FailedRow]], Sequence[RetriedRow]]
    """Which of the failed rows a retry runs again."""

RETRY_STOPPED = (
    "a retry of its failed rows was stopped halfway; go on with it first (job.retry(), or headrace retry), or give it"
    " up (job.abandon_retry(), or headrace retry --abandon)"
)


def home_of(folder: str | None, *, storage_options: Mapping[str, Any] | None = None) -> Home | RemoteHome:
    """Return where an output keeps its journal: beside it, wherever it is."""
    if folder is None or local_path(folder) is not None:
        return Home(folder, storage_options=storage_options)
    from headrace.engine.commit.remote_home import RemoteHome

    return RemoteHome(folder, storage_options=storage_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An output that is ready for this run."""

    journal: Journal
    segments: Segments
    letters: DeadLetters | None
    done: Done
    before: Totals
    """What earlier runs finished, in parts and in segments."""
    recovered: list[Piece] = field(default_factory=list)
    """What lies in segments beyond the frontier."""
    retrying: Retrying | None = None
    """The failed rows that this run runs again."""


def claim_output(
    home: Home | RemoteHome, identity: JobIdentity, if_exists: str, dead_letters: str | None, *, retry: bool
) -> Journal:
    """Open the journal of an output that is this job's, or begin one.

    Raises:
        ResumeError: it belongs to another job, or was damaged, or there is nothing to retry yet.
    """
    return _journal_for_retry(home, identity) if retry else _journal(home, identity, if_exists, dead_letters)


def open_output(
    sink: Sink,
    home: Home | RemoteHome,
    journal: Journal,
    identity: JobIdentity,
    units: Sequence[Unit],
    dead_letters: str | None,
    *,
    letters_format: LettersFormat = "json",
    choose: Choose | None = None,
    disk: DiskBudget | None = None,
) -> Opened:
    """Make a claimed output ready: mended, and its segments looked through.

    `choose` asks for a retry, and says which of the failed rows it shall run again.

    Raises:
        ResumeError: it was damaged.
    """
    letters = letters_of(home, journal, dead_letters, letters_format, retries=choose is not None)
    settle(sink, home, journal, letters)
    crash_point("open.published")
    check_parts(home, journal)
    home.clear_staging()
    if journal.finished:
        home.clear_segments()  # a retry would take what a job left for answers of its own
        if choose is None:
            _reopen_for_more(journal, units)
    elif journal.frontier is not None and journal.frontier[0] not in units:
        raise ResumeError(f"{home.output}: the input has fewer splits than when this output was begun; {AFRESH}")
    retrying = None if choose is None else _begin_retry(journal, identity, choose)
    segments = home.open_segments(disk)
    recovered = [] if journal.finished else _recover(segments, journal)
    segments.trim()
    before = _before(journal.totals, recovered)
    finished = retrying.finished(units) if retrying is not None else {}
    return Opened(
        journal=journal,
        segments=segments,
        letters=letters,
        done=_done(journal, recovered, before, finished),
        before=before,
        recovered=recovered,
        retrying=retrying,
    )


def letters_of(
    home: Home | RemoteHome, journal: Journal, folder: str | None, format: LettersFormat, *, retries: bool
) -> DeadLetters | None:
    """Return the dead letters; those of a retry lie beside the ones that it may solve, in the same format."""
    where = (journal.dead_letters or folder) if retries else (folder or journal.dead_letters)
    if where is None:
        return None
    if retries:
        format = next((format_of(letters.receipt) for letters in journal.letters()), format)
    return DeadLetters(
        where, home.staging, format=format, storage_options=home.storage_options, staged_in=home.staged_in
    )


def begin_afresh(
    home: Home | RemoteHome, identity: JobIdentity, *, dead_letters: str | None, overwrite: bool
) -> Journal:
    """Throw away what the home holds, and with `overwrite` the parts and dead letters too; begin a journal."""
    home.clear()
    if overwrite:
        home.clear_output(dead_letters)
    journal = home.open_journal()
    journal.begin(identity, dead_letters=dead_letters)
    sync(home.path)
    crash_point("open.created")
    return journal


def progress_of(journal: Journal, segments: str) -> Callable[[int], Progress]:
    """Return what says how far a split is, by its number; `segments` is the folder of segments."""
    finished, frontier = journal.finished, journal.frontier
    begun = {unit.split for unit, _, _ in heads(segments)}
    # Where rows are mixed on the way, the frontier lies in an order of its own.
    mixed = frontier is not None and frontier[0].split not in {record.number for record in journal.splits()}

    def progress(split: int) -> Progress:
        if finished:
            return "done"
        if frontier is not None and not mixed and (split < frontier[0].split or frontier == (Unit(split), END)):
            return "done"
        if split in begun or (frontier is not None and (mixed or split <= frontier[0].split)):
            return "begun"
        return "untouched"

    return progress


def _reopen_for_more(journal: Journal, units: Sequence[Unit]) -> None:
    """Go on with a finished job where there are units of splits that it did not know."""
    recorded = {record.number for record in journal.splits()}
    known = [unit for unit in units if unit.split in recorded]
    if recorded and known and len(known) < len(units):
        journal.reopen((known[-1], END))


def _journal(home: Home | RemoteHome, identity: JobIdentity, if_exists: str, dead_letters: str | None) -> Journal:
    if home.has_journal and if_exists == "resume":
        journal = home.open_journal()
        try:
            then = journal.identity
            if Amendments(journal).retry_begun:
                raise ResumeError(f"{home.output}: {RETRY_STOPPED}")
            if journal.hopeless:
                if_exists = "overwrite"
            elif then is not None and something_finished(home, journal):
                check_same_job(str(home.output), then=then, now=identity, rows=rows_finished(home, journal))
                return journal
        except BaseException:
            journal.close()
            raise
        journal.close()
    if dead_letters is not None and if_exists != "overwrite":
        _refuse_others_letters(dead_letters)
    return begin_afresh(home, identity, dead_letters=dead_letters, overwrite=if_exists == "overwrite")


def _journal_for_retry(home: Home | RemoteHome, identity: JobIdentity) -> Journal:
    journal = home.open_journal()
    try:
        then = journal.identity
        if then is None or journal.hopeless or not (journal.finished or Amendments(journal).retry_begun):
            raise ResumeError(
                f"{home.output}: failed rows are run again when all others are done; run the job to its end first"
            )
        check_same_sources(str(home.output), then=then, now=identity)
    except BaseException:
        journal.close()
        raise
    return journal


def _begin_retry(journal: Journal, identity: JobIdentity, choose: Choose) -> Retrying:
    """Begin a retry, or go on with one that was stopped; the functions may be others than they were."""
    if not Amendments(journal).retry_begun:
        rows = choose(journal.failed())
        if rows:
            Amendments(journal).begin_retry(rows)
            crash_point("retry.begun")
    if Amendments(journal).retry_begun:
        Amendments(journal).go_on_as(identity)
    return Retrying(Amendments(journal).retrying())


def something_finished(home: Home | RemoteHome, journal: Journal) -> bool:
    """Say whether there is anything that a later run could go on from."""
    return (
        journal.finished
        or journal.frontier is not None
        or journal.totals.parts > 0
        or any(True for _ in heads(home.segments))
        or home.has_answers
    )


def rows_finished(home: Home | RemoteHome, journal: Journal) -> int:
    """Count the rows in parts and in segments."""
    return journal.totals.rows + rows_beyond(home.segments, journal.frontier)


def _refuse_others_letters(folder: str) -> None:
    root = local_path(folder)
    if root is None or not os.path.isdir(root):
        return
    if any(OUR_LETTERS.fullmatch(name) for name in os.listdir(root)):
        raise OutputExistsError(
            f"{folder} holds dead letters of another job; move them, choose another folder with dead_letters=, or pass"
            ' if_exists="overwrite" (--overwrite) to replace them'
        )


def settle(sink: Sink, home: Home | RemoteHome, journal: Journal, letters: DeadLetters | None) -> None:
    """Make visible what is committed, and remove what it has replaced; idempotent, since a crash may come at any time.

    Raises:
        SinkError: the disk or the sink refuses.
    """
    for part in journal.parts(published=False):
        sink.publish(part.receipt)
        crash_point("settle.published")
    if letters is not None:
        settle_letters(journal, letters)
    if replaced := Amendments(journal).replaced():
        home.remove_parts(sorted(_names(replaced) - _names(part.receipt for part in journal.parts())))
        crash_point("settle.removed")
        Amendments(journal).forget_replaced()
    journal.mark_published()


def _names(receipts: Iterable[str]) -> set[str]:
    return {part.name for part in map(PartReceipt.parse, receipts) if part is not None}


def check_parts(home: Home | RemoteHome, journal: Journal) -> None:
    """Return if the finished parts are as they were written.

    Raises:
        ResumeError: names one that is not.
    """
    parts = journal.parts()
    sizes = home.part_sizes() if parts else None
    if sizes is None:
        return
    for part in parts:
        receipt = PartReceipt.parse(part.receipt)
        if receipt is None:
            continue
        size = sizes.get(receipt.name, -1)
        if size == part.nbytes or (part.rewriting and size >= 0):
            continue
        name = home.name_of(part.receipt)
        what = "is missing" if size < 0 else f"has {size:,} bytes"
        raise ResumeError(
            f"{name} was finished with {part.nbytes:,} bytes and {what} now: somebody or something changed it."
            f" Put it back as it was; or {AFRESH}"
        )


def _recover(segments: Segments, journal: Journal) -> list[Piece]:
    frontier = journal.frontier
    found = []
    for block, saved in segments.recover(frontier=frontier):
        low = frontier[1] if frontier is not None and block.unit == frontier[0] else block.start
        clipped = block.clip(low, block.end)
        assert clipped is not None
        piece = Piece.of(clipped, now=0.0, saved=saved)
        piece.block = None  # read again when its turn comes
        found.append(piece)
    return _apart(found, segments)


def _apart(pieces: list[Piece], segments: Segments) -> list[Piece]:
    """Drop what overlaps: a run that had lost its output may have left rows in a store that another made anew."""
    kept: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.unit, p.start)):
        if kept and kept[-1].unit == piece.unit and piece.start < kept[-1].end:
            assert piece.saved is not None
            segments.release(piece.saved)
        else:
            kept.append(piece)
    return kept


def _before(totals: Totals, pieces: list[Piece]) -> Totals:
    return Totals(
        rows=totals.rows + sum(piece.rows for piece in pieces),
        with_error=totals.with_error + sum(piece.errors for piece in pieces),
        dead_letters=totals.dead_letters + sum(piece.failures for piece in pieces),
        parts=totals.parts,
        nbytes=totals.nbytes,
    )


def _done(journal: Journal, pieces: list[Piece], before: Totals, finished: Mapping[Unit, tuple[Range, ...]]) -> Done:
    by_unit: dict[Unit, list[Range]] = {}
    for piece in pieces:
        by_unit.setdefault(piece.unit, []).append((piece.start, piece.end))
    return Done(
        frontier=journal.frontier,
        ranges={**finished, **{unit: joined(ranges) for unit, ranges in by_unit.items()}},
        everything=journal.finished,
        rows=before.rows,
    )
