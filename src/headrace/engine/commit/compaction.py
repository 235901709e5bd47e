"""Compaction: the parts of a finished output put together anew, larger and in the order of the input."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.entries import PartRecord
from headrace.engine.commit.merging import Run, cut, merged, moved
from headrace.engine.commit.opening import RETRY_STOPPED, check_parts, home_of, letters_of, settle
from headrace.errors import HeadraceError, ResumeError, SinkError
from headrace.records.types import unify_schemas
from headrace.sinks.disk import cannot_write
from headrace.sinks.folder import PartReceipt
from headrace.sinks.rows import MergingSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.engine.commit.home import Home
    from headrace.engine.commit.journal import Journal
    from headrace.engine.commit.remote_home import RemoteHome
    from headrace.sinks.rows import PartRows
    from headrace.sinks.sink import Sink

DEFAULT_PART_BYTES = 128 * 2**20
"""Bytes of a file: what readers of large outputs like best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did."""

    rows: int
    parts_before: int
    parts: int
    nbytes: int


def compact(sink: Sink, *, target_part_bytes: int | None = None, rows_per_part: int | None = None) -> Compacted:
    """Put a finished output's parts together anew: larger, and with the rows of retries where they belong.

    All new parts are written out of sight; one transaction of the journal makes them the output; then they take the
    place of the old ones. Whatever dies in between is made up for by the next command that writes there. A reader sees
    whole files at any moment, but not the same rows in all of them while they are exchanged: neither folders nor stores
    give several files their names at one stroke, and a listing is all that readers of a folder go by.

    Raises:
        ResumeError: no job has finished there, or its parts have been changed.
        SinkError: the output cannot be written, or parts of its kind cannot be put together.
    """
    folder = sink.folder
    if folder is None or not isinstance(sink, MergingSink):
        raise SinkError(f"{sink.name}: only files in a folder can be put together anew")
    home = home_of(folder, storage_options=getattr(sink, "storage_options", None))
    try:
        home.inspect(if_exists="resume")
        if not home.has_journal:
            raise ResumeError(f"{folder}: there is nothing to compact, since no job has written here")
        home.claim()
        with closing(home.open_journal()) as journal:
            _check_finished(folder, journal)
            try:
                letters = letters_of(home, journal, None, "json", retries=True)
                settle(sink, home, journal, letters)
                check_parts(home, journal)
                home.clear_staging()
                found = _Compaction(sink, home, journal).run(target_part_bytes, rows_per_part)
                settle(sink, home, journal, letters)
                return found
            finally:
                home.clear_work()  # not of a job that is unfinished: its segments are rows
    finally:
        home.release()


def _check_finished(folder: str, journal: Journal) -> None:
    if Amendments(journal).retry_begun:
        raise ResumeError(f"{folder}: {RETRY_STOPPED}")
    if not journal.finished:
        raise ResumeError(f"{folder}: only a finished output can be compacted; run the job to its end first")


class _Compaction:
    def __init__(self, sink: MergingSink, home: Home | RemoteHome, journal: Journal) -> None:
        self._sink, self._home, self._journal = sink, home, journal
        self._rows: dict[int, PartRows] = {}
        self._left: dict[int, int] = {}
        """Rows that are still to be taken, by part."""

    def run(self, target_part_bytes: int | None, rows_per_part: int | None) -> Compacted:
        parts, answered = self._journal.parts(), Amendments(self._journal).answered()
        total = sum(part.rows for part in parts)
        wanted = rows_per_part or _rows_for(target_part_bytes or DEFAULT_PART_BYTES, parts)
        plan = cut(merged([Run(part.number, part.rows) for part in parts], answered), wanted)
        if total and (answered or len(plan) < len(parts) or rows_per_part is not None):
            schema = unify_schemas([part.schema for part in parts])
            records = self._written(parts, plan, schema)
            crash_point("compact.prepared")
            Amendments(self._journal).replace_parts(records, places=moved(self._journal.failed(), answered))
            crash_point("compact.committed")
        totals = self._journal.totals
        return Compacted(rows=total, parts_before=len(parts), parts=totals.parts, nbytes=totals.nbytes)

    def _written(
        self, parts: Sequence[PartRecord], plan: Sequence[Sequence[Run]], schema: pa.Schema
    ) -> list[PartRecord]:
        sources = {part.number: part for part in parts}
        with ExitStack() as opened:
            opened.callback(self._close)
            return [self._part(number, runs, sources, schema) for number, runs in enumerate(plan)]

    def _part(self, number: int, runs: Sequence[Run], sources: dict[int, PartRecord], schema: pa.Schema) -> PartRecord:
        writer = self._sink.open_part(number, schema, self._home.staging)
        try:
            for run in runs:
                for piece in self._rows_of(sources[run.part]).take(run.rows):
                    writer.copy(piece)
                self._taken(run)
            receipt = self._home.stage(writer.prepare(), self._home.output or "")
        except EOFError:
            raise ResumeError(f"{self._home.output}: a part holds fewer rows than were written; put it back") from None
        except OSError as error:
            raise cannot_write(os.path.join(self._home.output or "", f"part {number}"), error) from error
        except BaseException:
            with suppress(OSError, HeadraceError):
                writer.discard()
            raise
        found = PartReceipt.parse(receipt)
        assert found is not None, receipt
        return PartRecord(
            number=number, receipt=receipt, rows=sum(r.rows for r in runs), nbytes=found.nbytes, schema=schema
        )

    def _rows_of(self, part: PartRecord) -> PartRows:
        if part.number not in self._rows:
            with self._home.fetched(part.receipt) as path:
                self._rows[part.number] = self._sink.open_rows(path)
            self._left[part.number] = part.rows
        return self._rows[part.number]

    def _taken(self, run: Run) -> None:
        """Close a part whose rows are all taken, so that few are open at a time."""
        self._left[run.part] -= run.rows
        if not self._left[run.part]:
            self._rows.pop(run.part).close()

    def _close(self) -> None:
        for rows in self._rows.values():
            rows.close()


def _rows_for(target_bytes: int, parts: Sequence[PartRecord]) -> int:
    rows, nbytes = sum(part.rows for part in parts), sum(part.nbytes for part in parts)
    return max(1, round(target_bytes * rows / max(1, nbytes)))
