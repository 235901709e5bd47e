"""Publishing: prepared parts become committed, then visible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.entries import LettersRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.commit.dead_letters import DeadLetters
    from headrace.engine.commit.entries import Totals
    from headrace.engine.commit.home import Home
    from headrace.engine.commit.journal import Journal
    from headrace.engine.commit.part import Part
    from headrace.engine.commit.remote_home import RemoteHome
    from headrace.sinks.sink import Sink


class Publisher:
    """Commits and publishes; one thread at a time, in the order of the input.

    The order of steps is the whole point: whatever is prepared is durable, the journal's transaction is the commit, and
    what follows it is repeated at the next start until it is done.
    """

    def __init__(
        self,
        sink: Sink,
        home: Home | RemoteHome,
        journal: Journal,
        letters: DeadLetters | None,
        *,
        retries: bool = False,
    ) -> None:
        self._sink = sink
        self._home = home
        self._journal = journal
        self._letters = letters
        self._retries = retries
        self._totals = journal.totals
        # Places count the rows of ordinary runs; those of retries are put among them later.
        self._answered_rows = sum(found.rows for _, found in Amendments(journal).answered())

    @property
    def totals(self) -> Totals:
        """What is committed and visible."""
        return self._totals

    def commit(self, group: Sequence[Part]) -> None:
        """Commit parts that follow one another, with their dead letters, and make both visible.

        Raises:
            SinkError: the disk or the sink refuses; what is in the journal then is published at the next start.
        """
        letters = self._prepare_letters(group)
        parts = [part.record() for part in group if part.number is not None]
        errors = sum(part.errors for part in group)
        frontier = group[-1].end if group[-1].pieces else self._journal.frontier
        self._journal.commit(parts, letters, frontier=frontier, with_error=errors)
        for part in parts:
            self._sink.publish(part.receipt)
            crash_point("part.published")
        for letter in letters:
            if not letter.receipt:
                continue
            assert self._letters is not None
            self._letters.publish(letter.receipt)
            crash_point("letters.published")
        # The journal learns with the next commit that they are visible; after a crash they are published once more.
        self._totals = self._totals.plus(parts, letters, with_error=errors)
        # Rows pass from readers to encoders: freed memory would pile up with the threads that had asked for it.
        pa.default_memory_pool().release_unused()

    def widen(self, schema: pa.Schema) -> None:
        """Rewrite the parts that were written before a column turned up or widened.

        Raises:
            SinkError: the disk or the sink refuses; the next start goes on with it.
        """
        if self._sink.holds_late_columns():
            return
        narrow = [part for part in self._journal.parts() if part.rewriting or not part.schema.equals(schema)]
        if not narrow:
            return
        # A part's size is in doubt from here until its new size is in the journal.
        self._journal.mark_rewriting(part.number for part in narrow)
        crash_point("rewrite.marked")
        for part in narrow:
            self._sink.rewrite(part.receipt, schema, self._home.staging)
            crash_point("rewrite.replaced")
            self._journal.mark_rewritten(part.number, schema, self._home.size_of(part.receipt))
            crash_point("rewrite.recorded")
        self._totals = self._journal.totals

    def _prepare_letters(self, group: Sequence[Part]) -> list[LettersRecord]:
        failed, before = [], self._totals.rows - self._answered_rows
        for part in group:
            failed += part.failed if self._retries else [replace(row, place=before + row.place) for row in part.failed]
            before += part.rows
        if not failed:
            return []
        failures = [failure for part in group for failure in part.failures if not failure.elsewhere]
        number, receipt = self._totals.letters, ""
        if failures:
            assert self._letters is not None, "checked when the failures came"
            receipt = self._home.stage(self._letters.prepare(number, failures), self._letters.path)
            crash_point("letters.prepared")
        return [LettersRecord(number=number, receipt=receipt, rows=len(failures), failed=tuple(failed))]

    def finish_retry(self) -> None:
        """Mark a retry as done: letters whose rows were run again go, those that cannot be stay.

        Raises:
            SinkError: the disk refuses; the next start goes on with it.
        """
        replaced: dict[int, LettersRecord | None] = {}
        number = self._totals.letters
        for letters in self._journal.letters():
            if letters.solved:
                replaced[letters.number] = None
                if letters.rows:
                    assert self._letters is not None
                    kept = Amendments(self._journal).lines_kept(letters.number)
                    excerpt = self._letters.excerpt(letters.receipt, kept, number=number)
                    receipt = self._home.stage(excerpt, self._letters.path)
                    replaced[letters.number] = LettersRecord(number=number, receipt=receipt, rows=len(kept))
                    number += 1
        crash_point("retry.prepared")
        Amendments(self._journal).finish_retry(replaced)
        crash_point("retry.finished")
        if self._letters is not None:
            settle_letters(self._journal, self._letters)
        self._totals = self._journal.totals


def settle_letters(journal: Journal, letters: DeadLetters) -> None:
    """Make committed dead letters visible and remove dropped ones; repeated at the next start after a crash."""
    found = journal.letters()
    for record in found:
        if not record.published and not record.dropped:
            letters.publish(record.receipt)
    crash_point("letters.republished")
    for record in found:
        if record.dropped:
            letters.remove(record.receipt)
    journal.mark_published()
    Amendments(journal).forget_dropped()
