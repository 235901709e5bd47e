"""Opening an output: whose it is, what a crash left, and what is done."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.dead_letters import DeadLetters
from headrace.engine.commit.done import Done, joined
from headrace.engine.commit.home import OUR_LETTERS
from headrace.engine.commit.identity import AFRESH, check_same_job, check_same_sources
from headrace.engine.commit.journal import Journal, Totals
from headrace.engine.commit.piece import Piece
from headrace.engine.commit.publisher import settle_letters
from headrace.engine.commit.retrying import RetriedRow, Retrying
from headrace.engine.commit.segments import Segments, heads, rows_beyond
from headrace.errors import OutputExistsError, ResumeError
from headrace.sinks.folder import local_path, remove_quietly, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.engine.commit.dead_letters import LettersFormat
    from headrace.engine.commit.done import Range
    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.home import Home
    from headrace.engine.commit.identity import JobIdentity
    from headrace.records.block import Unit
    from headrace.sinks.sink import Sink

    Choose: TypeAlias = Callable[[Sequence[FailedRow]], Sequence[RetriedRow]]
    """Which of the failed rows a retry runs again."""


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


def open_output(
    sink: Sink,
    home: Home,
    identity: JobIdentity,
    units: Sequence[Unit],
    if_exists: str,
    dead_letters: str | None,
    *,
    letters_format: LettersFormat = "json",
    choose: Choose | None = None,
) -> Opened:
    """Make an output ready: begun afresh, or mended and gone on with.

    `choose` asks for a retry, and says which of the failed rows it shall run again.

    Raises:
        ResumeError: it belongs to another job, or was damaged, or there is nothing to retry yet.
    """
    if choose is None:
        journal = _journal(home, identity, units, if_exists, dead_letters)
    else:
        journal = _journal_for_retry(home, identity)
    try:
        where = dead_letters or journal.dead_letters
        letters = None
        if where:
            letters = DeadLetters(where, home.staging, format=letters_format, storage_options=home.storage_options)
        settle(sink, home, journal, letters)
        crash_point("open.published")
        check_parts(home, journal)
        home.clear_staging()
        if journal.finished:
            _remove_segments(home)
        retrying = None if choose is None else _begin_retry(journal, identity, choose)
        segments = Segments(home.segments)
        recovered = [] if journal.finished else _recover(segments, journal)
        segments.trim()
    except BaseException:
        journal.close()
        raise
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


def _journal(
    home: Home, identity: JobIdentity, units: Sequence[Unit], if_exists: str, dead_letters: str | None
) -> Journal:
    if home.has_journal and if_exists == "resume":
        journal = Journal(home.journal)
        try:
            then = journal.identity
            if journal.retries:
                raise ResumeError(
                    f"{home.output}: a retry of its failed rows was stopped halfway; go on with it first"
                    " (job.retry(), or headrace retry)"
                )
            if journal.hopeless:
                if_exists = "overwrite"
            elif then is not None and something_finished(home, journal):
                check_same_job(str(home.output), then=then, now=identity, rows=_rows_finished(home, journal))
                frontier = journal.frontier
                if frontier is not None and frontier[0] not in units:
                    raise ResumeError(
                        f"{home.output}: the input has fewer splits than when this output was begun; {AFRESH}"
                    )
                return journal
        except BaseException:
            journal.close()
            raise
        journal.close()
    if dead_letters is not None and if_exists != "overwrite":
        _refuse_others_letters(dead_letters)
    home.clear()
    if if_exists == "overwrite":
        home.clear_output(dead_letters)
    journal = Journal(home.journal)
    journal.begin(identity, dead_letters=dead_letters)
    sync(home.path)
    crash_point("open.created")
    return journal


def _journal_for_retry(home: Home, identity: JobIdentity) -> Journal:
    journal = Journal(home.journal)
    try:
        then = journal.identity
        if then is None or journal.hopeless or not (journal.finished or journal.retries):
            raise ResumeError(
                f"{home.output}: failed rows are run again when all others are done; run the job to its end first"
            )
        check_same_sources(str(home.output), then=then, now=identity)
    except BaseException:
        journal.close()
        raise
    return journal


def _remove_segments(home: Home) -> None:
    """Remove what a job left that ended before it could; a retry would take it for answers of its own."""
    for name in os.listdir(home.segments):
        os.unlink(os.path.join(home.segments, name))


def _begin_retry(journal: Journal, identity: JobIdentity, choose: Choose) -> Retrying:
    """Begin a retry, or go on with one that was stopped; the functions may be others than they were."""
    if not journal.retries:
        rows = choose(journal.failed())
        if rows:
            journal.begin_retry(rows)
            crash_point("retry.begun")
    if journal.retries:
        journal.go_on_as(identity)
    return Retrying(journal.retrying())


def something_finished(home: Home, journal: Journal) -> bool:
    """Say whether there is anything that a later run could go on from."""
    return (
        journal.finished
        or journal.frontier is not None
        or journal.totals.parts > 0
        or any(True for _ in heads(home.segments))
        or os.path.exists(home.answers)
    )


def _rows_finished(home: Home, journal: Journal) -> int:
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


def settle(sink: Sink, home: Home, journal: Journal, letters: DeadLetters | None) -> None:
    """Make visible what is committed, and remove what it has replaced; idempotent, since a crash may come at any time.

    Raises:
        SinkError: the disk or the sink refuses.
    """
    parts = journal.parts()
    for part in parts:
        if not part.published:
            sink.publish(part.receipt)
            crash_point("settle.published")
    if letters is not None:
        settle_letters(journal, letters)
    if replaced := journal.replaced():
        for file in set(map(home.file_of, replaced)) - {home.file_of(part.receipt) for part in parts}:
            remove_quietly(file)
        crash_point("settle.removed")
        journal.forget_replaced()
    journal.mark_published()


def check_parts(home: Home, journal: Journal) -> None:
    """Return if the finished parts are as they were written.

    Raises:
        ResumeError: names one that is not.
    """
    for part in journal.parts():
        size = home.size_of(part.receipt)
        if size is None or size == part.nbytes or (part.rewriting and size >= 0):
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
    return found


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
