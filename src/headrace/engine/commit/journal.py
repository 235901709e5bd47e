"""The journal: what is committed.

A commit (parts, dead letters, frontier) is one durable transaction of its file (`journal_file.py`): it is on the disk
before a part gets its visible name, and the part was on the disk before it. So after a power cut the journal never
promises what is not there, and what it promises without being visible is published again at the next start.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.entries import LettersRecord, PartRecord, SplitRecord, Totals
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.journal_file import FORMAT, JournalFile
from headrace.masking import masked
from headrace.records.block import Unit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from headrace.engine.commit.done import Place
    from headrace.engine.commit.remote_log import Entry, RemoteLog


class Journal:
    """One output's journal. Thread-safe."""

    def __init__(
        self, path: str, *, read_only: bool = False, log: RemoteLog | None = None, entries: Sequence[Entry] = ()
    ) -> None:
        """Open the file at `path`, or make it; `entries` of the log have come since the file was written."""
        self.file = JournalFile(path, read_only=read_only, log=log, entries=entries)
        self._kept: tuple[pa.Schema, str, int] | None = None
        """The schema that was stored last (most parts have the same), its digest, and how much was undone by then."""

    def begin(self, identity: JobIdentity, *, dead_letters: str | None) -> None:
        """Note whose journal this is."""
        with self.file.transaction():
            self.file.set_meta("format", FORMAT)
            self.file.set_meta("job", uuid4().hex[:12])
            self.file.set_meta("identity", json.dumps([identity.components, identity.unknown]))
            if dead_letters is not None and masked(dead_letters) == dead_letters:
                self.file.set_meta("dead_letters", dead_letters)  # a URL with secrets has to be given again
            self.file.set_meta("state", "unfinished")

    @property
    def job(self) -> str:
        """What tells this job from others that had the same output: a random text."""
        return self.file.meta("job") or ""

    @property
    def identity(self) -> JobIdentity | None:
        """Whose journal this is; None for a new one."""
        text = self.file.meta("identity")
        return None if text is None else JobIdentity(*json.loads(text))

    @property
    def dead_letters(self) -> str | None:
        """The folder of dead letters."""
        return self.file.meta("dead_letters")

    @property
    def finished(self) -> bool:
        """Whether the job is done."""
        return self.file.meta("state") == "finished"

    @property
    def hopeless(self) -> bool:
        """Whether every row failed, so that there is nothing to go on from."""
        return self.file.meta("state") == "hopeless"

    @property
    def frontier(self) -> Place | None:
        """The place up to which all is committed; None before the first commit."""
        text = self.file.meta("frontier")
        if text is None:
            return None
        unit, position = json.loads(text)
        return Unit(unit[0], tuple(unit[1:])), tuple(position)

    @property
    def schema(self) -> pa.Schema | None:
        """The widest schema of all parts."""
        query = "select s.schema from parts p join schemas s on s.digest = p.schema order by p.number desc limit 1"
        found = self.file.select(query)
        return pa.ipc.read_schema(pa.py_buffer(found[0][0])) if found else None

    @property
    def totals(self) -> Totals:
        """What is committed."""
        ((rows, count, nbytes, failed, files),) = self.file.select(
            "select coalesce(sum(rows), 0), count(*), coalesce(sum(nbytes), 0),"
            " (select coalesce(sum(rows), 0) from letters), (select coalesce(max(number) + 1, 0) from letters)"
            " from parts"
        )
        with_error = int(self.file.meta("with_error") or 0)
        return Totals(rows=rows, with_error=with_error, parts=count, nbytes=nbytes, dead_letters=failed, letters=files)

    def parts(self, *, published: bool | None = None) -> list[PartRecord]:
        """Return the committed parts, in order; those that are known to be visible, or those that are not."""
        query = "select number, receipt, rows, nbytes, schema, published, rewriting from parts"
        query += "" if published is None else f" where published = {published:d}"
        found = self.file.select(f"{query} order by number")
        stored = self.file.select("select digest, schema from schemas")
        schemas = {digest: pa.ipc.read_schema(pa.py_buffer(schema)) for digest, schema in stored}
        return [
            PartRecord(
                number=number,
                receipt=receipt,
                rows=rows,
                nbytes=nbytes,
                schema=schemas[digest],
                published=bool(visible),
                rewriting=bool(rewriting),
            )
            for number, receipt, rows, nbytes, digest, visible, rewriting in found
        ]

    def letters(self) -> list[LettersRecord]:
        """Return the committed files of dead letters, in order."""
        query = "select number, receipt, rows, published, solved, dropped from letters order by number"
        found = self.file.select(query)
        return [
            LettersRecord(number=n, receipt=r, rows=c, published=bool(p), solved=solved, dropped=bool(dropped))
            for n, r, c, p, solved, dropped in found
        ]

    def commit(
        self,
        parts: Sequence[PartRecord],
        letters: Sequence[LettersRecord],
        *,
        frontier: Place | None,
        with_error: int = 0,
    ) -> None:
        """Commit, durably, all of it or nothing; what was committed before is visible by now."""
        crash_point("journal.before")
        total = int(self.file.meta("with_error") or 0) + with_error if with_error else 0
        with self.file.transaction(durable=True) as db:
            _mark_published(db)
            for part in parts:
                self.add_part(db, part)
            for letter in letters:
                self.add_letters(db, letter)
            if frontier is not None:
                unit, position = frontier
                self.file.set_meta("frontier", json.dumps([[unit.split, *unit.lane], position]))
            if total:
                self.file.set_meta("with_error", str(total))
        crash_point("journal.after")

    def failed(self) -> list[FailedRow]:
        """Return the rows that have failed and are in no retry, in the order in which they were committed."""
        query = "select split, ordinal, place, stage, attempt, siblings, line is null from failed order by id"
        found = self.file.select(query)
        return [
            FailedRow(
                split=s, ordinal=o, place=p, stage=stage, attempt=a, siblings=bool(siblings), elsewhere=bool(elsewhere)
            )
            for s, o, p, stage, a, siblings, elsewhere in found
        ]

    def failed_by_split(self) -> dict[int, int]:
        """Return how many rows of each split are in the dead letters."""
        found = self.file.select("select split, count(*) from failed group by split")
        return dict(found)

    def mark_published(self) -> None:
        """Note that everything committed so far is visible."""
        with self.file.transaction() as db:
            _mark_published(db)

    def mark_rewriting(self, numbers: Iterable[int]) -> None:
        """Note that parts are about to be replaced; all are visible by now, and are not to be published once more."""
        with self.file.transaction(durable=True) as db:
            _mark_published(db)
            db.executemany("update parts set rewriting = 1 where number = ?", [(n,) for n in numbers])

    def mark_rewritten(self, number: int, schema: pa.Schema, nbytes: int | None) -> None:
        """Note that a part has been replaced."""
        with self.file.transaction(durable=True) as db:
            db.execute(
                "update parts set rewriting = 0, schema = ?, nbytes = coalesce(?, nbytes) where number = ?",
                (self._keep_schema(db, schema), nbytes, number),
            )

    def finish(self, *, hopeless: bool = False) -> None:
        """Note that the job is done, or that every row failed; all that was committed is visible."""
        with self.file.transaction(durable=True) as db:
            _mark_published(db)
            self.file.set_meta("state", "hopeless" if hopeless else "finished")
        self.file.write_snapshot()

    def record_splits(self, splits: Iterable[SplitRecord]) -> None:
        """Keep what is known of splits; a fingerprint once known is not lost to a record without one."""
        rows = [(s.number, s.label, s.version, s.fingerprint, s.source, s.packed, s.closed) for s in splits]
        with self.file.transaction() as db:
            db.executemany(
                "insert into splits values (?, ?, ?, ?, ?, ?, ?) on conflict (number) do update set"
                " label = excluded.label, version = excluded.version, files = coalesce(excluded.files, files),"
                " fingerprint = coalesce(excluded.fingerprint, fingerprint), closed = max(closed, excluded.closed)",
                rows,
            )

    def splits(self) -> list[SplitRecord]:
        """Return what was recorded, by number."""
        query = "select number, label, version, fingerprint, source, files, closed from splits order by number"
        found = self.file.select(query)
        return [
            SplitRecord(n, label, version, digest, source, packed, bool(closed))
            for n, label, version, digest, source, packed, closed in found
        ]

    def reopen(self, frontier: Place) -> None:
        """Note that a finished job has more to do behind `frontier`, up to which all is done."""
        unit, position = frontier
        with self.file.transaction(durable=True):
            self.file.set_meta("frontier", json.dumps([[unit.split, *unit.lane], position]))
            self.file.set_meta("state", "unfinished")

    def close(self) -> None:
        """Close the file, leaving one plain file that can be read without writing beside it."""
        self.file.close()

    def add_part(self, db: sqlite3.Connection, part: PartRecord) -> None:
        """Enter a part; inside a transaction."""
        db.execute(
            "insert into parts (number, receipt, rows, nbytes, schema) values (?, ?, ?, ?, ?)",
            (part.number, part.receipt, part.rows, part.nbytes, self._keep_schema(db, part.schema)),
        )
        db.executemany(
            "insert into answered values (?, ?, ?, ?, ?, ?)",
            [(part.number, a.row, a.rows, a.split, a.ordinal, a.place) for a in part.answered],
        )

    def add_letters(self, db: sqlite3.Connection, letters: LettersRecord) -> None:
        """Enter dead letters; inside a transaction."""
        if letters.receipt:
            db.execute(
                "insert into letters (number, receipt, rows) values (?, ?, ?)",
                (letters.number, letters.receipt, letters.rows),
            )
        lines = itertools.count()
        db.executemany(
            "insert into failed (letters, line, split, ordinal, place, stage, attempt, siblings)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    None if f.elsewhere else letters.number,
                    None if f.elsewhere else next(lines),
                    *(f.split, f.ordinal, f.place, f.stage, f.attempt, f.siblings),
                )
                for f in letters.failed
            ],
        )

    def _keep_schema(self, db: sqlite3.Connection, schema: pa.Schema) -> str:
        """Store a schema once for all parts that have it; return its digest."""
        if self._kept is not None and self._kept[0] is schema and self._kept[2] == self.file.undone:
            return self._kept[1]
        data = schema.serialize().to_pybytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        db.execute("insert or ignore into schemas values (?, ?)", (digest, data))
        self._kept = schema, digest, self.file.undone
        return digest


def _mark_published(db: sqlite3.Connection) -> None:
    db.execute("update parts set published = 1 where published = 0")
    db.execute("update letters set published = 1 where published = 0")
