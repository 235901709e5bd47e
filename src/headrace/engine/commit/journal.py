"""The journal: a small SQLite file that says what is committed.

A commit (parts, dead letters, frontier) is one transaction with `synchronous=FULL`: it is on the disk before a part
gets its visible name, and the part was on the disk before it. So after a power cut the journal never promises what is
not there, and what it promises without being visible is published again at the next start.

Where the output is in a store, the file is a working copy: every durable transaction is entered in a `RemoteLog` first.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from headrace.engine.commit.changes import ChangeLog, apply, keys_of
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.entries import LettersRecord, PartRecord, SplitRecord, Totals
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.identity import AFRESH, JobIdentity
from headrace.errors import ResumeError, SinkError
from headrace.masking import masked
from headrace.records.block import Unit
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.engine.commit.done import Place
    from headrace.engine.commit.remote_log import Entry, RemoteLog

FORMAT = "2"
TABLES = """
create table if not exists meta (key text primary key, value text) without rowid;
create table if not exists splits (
    number integer primary key, label text, version text, fingerprint text, source text, files blob,
    closed integer default 0);
create table if not exists schemas (digest text primary key, schema blob) without rowid;
create table if not exists parts (
    number integer primary key, receipt text, rows integer, nbytes integer, schema text,
    published integer default 0, rewriting integer default 0);
create index if not exists unpublished on parts (number) where published = 0;
create table if not exists letters (
    number integer primary key, receipt text, rows integer, published integer default 0, solved integer default 0,
    dropped integer default 0);
create table if not exists failed (
    id integer primary key, letters integer, line integer, split integer, ordinal integer, place integer, stage text,
    attempt integer, siblings integer);
create table if not exists retrying (
    split integer, ordinal integer, place integer, attempt integer, primary key (split, ordinal)) without rowid;
create table if not exists shelved (
    id integer primary key, letters integer, line integer, split integer, ordinal integer, place integer, stage text,
    attempt integer, siblings integer);
create table if not exists answered (
    part integer, row integer, rows integer, split integer, ordinal integer, place integer,
    primary key (part, row)) without rowid;
create table if not exists replaced (receipt text primary key) without rowid;
"""


class Journal:
    """One output's journal. Thread-safe."""

    def __init__(
        self, path: str, *, read_only: bool = False, log: RemoteLog | None = None, entries: Sequence[Entry] = ()
    ) -> None:
        """Open the file at `path`, or make it; `entries` of the log have come since the file was written."""
        self._path = path
        self._read_only = read_only
        self._remote = log
        self._changed: ChangeLog | None = None
        self._lock = threading.Lock()
        self._kept: tuple[pa.Schema, str] | None = None
        """The schema that was stored last, with its digest: most parts have the same."""
        self._synchronous = ""
        self._begun = True
        with self._errors():
            if read_only:
                self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
                tables = self._db.execute("select name from sqlite_master where name = 'meta'")
                self._begun = tables.fetchone() is not None  # else a run is making it at this moment
            else:
                self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                # A working copy is no better than its log: it may go with the machine, and is read as one file.
                self._db.execute(f"pragma journal_mode={'wal' if log is None else 'memory'}")
                self._set_synchronous("normal")
            self._check_format()
            if not read_only:
                self._db.executescript(TABLES)
                self._replay(entries)

    def begin(self, identity: JobIdentity, *, dead_letters: str | None) -> None:
        """Note whose journal this is."""
        with self.transaction():
            self.set_meta("format", FORMAT)
            self.set_meta("job", uuid4().hex[:12])
            self.set_meta("identity", json.dumps([identity.components, identity.unknown]))
            if dead_letters is not None and masked(dead_letters) == dead_letters:
                self.set_meta("dead_letters", dead_letters)  # a URL with secrets has to be given again
            self.set_meta("state", "unfinished")

    def sync(self) -> None:
        """Enter in the log what is not durable yet; nothing to do for a file on a disk."""
        if self._remote is not None:
            with self.transaction(durable=True):
                pass

    @property
    def job(self) -> str:
        """What tells this job from others that had the same output: a random text."""
        return self.meta("job") or ""

    @property
    def identity(self) -> JobIdentity | None:
        """Whose journal this is; None for a new one."""
        text = self.meta("identity")
        return None if text is None else JobIdentity(*json.loads(text))

    @property
    def dead_letters(self) -> str | None:
        """The folder of dead letters."""
        return self.meta("dead_letters")

    @property
    def finished(self) -> bool:
        """Whether the job is done."""
        return self.meta("state") == "finished"

    @property
    def hopeless(self) -> bool:
        """Whether every row failed, so that there is nothing to go on from."""
        return self.meta("state") == "hopeless"

    @property
    def frontier(self) -> Place | None:
        """The place up to which all is committed; None before the first commit."""
        text = self.meta("frontier")
        if text is None:
            return None
        unit, position = json.loads(text)
        return Unit(unit[0], tuple(unit[1:])), tuple(position)

    @property
    def schema(self) -> pa.Schema | None:
        """The widest schema of all parts."""
        query = "select s.schema from parts p join schemas s on s.digest = p.schema order by p.number desc limit 1"
        with self._lock, self._errors():
            row = self._db.execute(query).fetchone()
        return None if row is None else pa.ipc.read_schema(pa.py_buffer(row[0]))

    @property
    def totals(self) -> Totals:
        """What is committed."""
        with self._lock, self._errors():
            parts = self._db.execute("select coalesce(sum(rows), 0), count(*), coalesce(sum(nbytes), 0) from parts")
            rows, count, nbytes = parts.fetchone()
            query = "select coalesce(sum(rows), 0), coalesce(max(number) + 1, 0) from letters"
            failed, files = self._db.execute(query).fetchone()
        with_error = int(self.meta("with_error") or 0)
        return Totals(rows=rows, with_error=with_error, parts=count, nbytes=nbytes, dead_letters=failed, letters=files)

    def parts(self, *, published: bool | None = None) -> list[PartRecord]:
        """Return the committed parts, in order; those that are known to be visible, or those that are not."""
        query = "select number, receipt, rows, nbytes, schema, published, rewriting from parts"
        query += "" if published is None else f" where published = {published:d}"
        with self._lock, self._errors():
            found = self._db.execute(f"{query} order by number").fetchall()
            stored = self._db.execute("select digest, schema from schemas").fetchall()
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
        with self._lock, self._errors():
            found = self._db.execute(query).fetchall()
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
        total = int(self.meta("with_error") or 0) + with_error if with_error else 0
        with self.transaction(durable=True):
            self._mark_published()
            for part in parts:
                self.add_part(part)
            for letter in letters:
                self.add_letters(letter)
            if frontier is not None:
                unit, position = frontier
                self.set_meta("frontier", json.dumps([[unit.split, *unit.lane], position]))
            if total:
                self.set_meta("with_error", str(total))
        crash_point("journal.after")

    def failed(self) -> list[FailedRow]:
        """Return the rows that have failed and are in no retry, in the order in which they were committed."""
        query = "select split, ordinal, place, stage, attempt, siblings, line is null from failed order by id"
        with self._lock, self._errors():
            found = self._db.execute(query).fetchall()
        return [
            FailedRow(
                split=s, ordinal=o, place=p, stage=stage, attempt=a, siblings=bool(siblings), elsewhere=bool(elsewhere)
            )
            for s, o, p, stage, a, siblings, elsewhere in found
        ]

    def select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds."""
        with self._lock, self._errors():
            return self._db.execute(query, values).fetchall()

    def failed_by_split(self) -> dict[int, int]:
        """Return how many rows of each split are in the dead letters."""
        with self._lock, self._errors():
            found = self._db.execute("select split, count(*) from failed group by split").fetchall()
        return dict(found)

    def mark_published(self) -> None:
        """Note that everything committed so far is visible."""
        with self.transaction():
            self._mark_published()

    def mark_rewriting(self, numbers: Iterable[int]) -> None:
        """Note that parts are about to be replaced; all are visible by now, and are not to be published once more."""
        with self.transaction(durable=True):
            self._mark_published()
            self._db.executemany("update parts set rewriting = 1 where number = ?", [(n,) for n in numbers])

    def mark_rewritten(self, number: int, schema: pa.Schema, nbytes: int | None) -> None:
        """Note that a part has been replaced."""
        with self.transaction(durable=True):
            self._db.execute(
                "update parts set rewriting = 0, schema = ?, nbytes = coalesce(?, nbytes) where number = ?",
                (self._keep_schema(schema), nbytes, number),
            )

    def finish(self, *, hopeless: bool = False) -> None:
        """Note that the job is done, or that every row failed; all that was committed is visible."""
        with self.transaction(durable=True):
            self._mark_published()
            self.set_meta("state", "hopeless" if hopeless else "finished")
        self._write_snapshot()

    def record_splits(self, splits: Iterable[SplitRecord]) -> None:
        """Keep what is known of splits; a fingerprint once known is not lost to a record without one."""
        rows = [(s.number, s.label, s.version, s.fingerprint, s.source, s.packed, s.closed) for s in splits]
        with self.transaction():
            self._db.executemany(
                "insert into splits values (?, ?, ?, ?, ?, ?, ?) on conflict (number) do update set"
                " label = excluded.label, version = excluded.version, files = coalesce(excluded.files, files),"
                " fingerprint = coalesce(excluded.fingerprint, fingerprint), closed = max(closed, excluded.closed)",
                rows,
            )

    def splits(self) -> list[SplitRecord]:
        """Return what was recorded, by number."""
        query = "select number, label, version, fingerprint, source, files, closed from splits order by number"
        with self._lock, self._errors():
            found = self._db.execute(query).fetchall()
        return [
            SplitRecord(n, label, version, digest, source, packed, bool(closed))
            for n, label, version, digest, source, packed, closed in found
        ]

    def reopen(self, frontier: Place) -> None:
        """Note that a finished job has more to do behind `frontier`, up to which all is done."""
        unit, position = frontier
        with self.transaction(durable=True):
            self.set_meta("frontier", json.dumps([[unit.split, *unit.lane], position]))
            self.set_meta("state", "unfinished")

    def close(self) -> None:
        """Close the file, leaving one plain file that can be read without writing beside it."""
        with self._lock, self._errors():
            if not self._read_only:
                with suppress(sqlite3.OperationalError):  # somebody is reading it just now
                    self._db.execute("pragma journal_mode=delete")
            self._db.close()

    def add_part(self, part: PartRecord) -> None:
        """Enter a part; inside a transaction."""
        self._db.execute(
            "insert into parts (number, receipt, rows, nbytes, schema) values (?, ?, ?, ?, ?)",
            (part.number, part.receipt, part.rows, part.nbytes, self._keep_schema(part.schema)),
        )
        self._db.executemany(
            "insert into answered values (?, ?, ?, ?, ?, ?)",
            [(part.number, a.row, a.rows, a.split, a.ordinal, a.place) for a in part.answered],
        )

    def add_letters(self, letters: LettersRecord) -> None:
        """Enter dead letters; inside a transaction."""
        if letters.receipt:
            self._db.execute(
                "insert into letters (number, receipt, rows) values (?, ?, ?)",
                (letters.number, letters.receipt, letters.rows),
            )
        lines = itertools.count()
        self._db.executemany(
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

    def meta(self, key: str) -> str | None:
        """Return one of the texts that are kept by name."""
        if not self._begun:
            return None
        with self._lock, self._errors():
            row = self._db.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Keep a text by name; inside a transaction."""
        self._db.execute("insert or replace into meta values (?, ?)", (key, value))

    def _mark_published(self) -> None:
        self._db.execute("update parts set published = 1 where published = 0")
        self._db.execute("update letters set published = 1 where published = 0")

    def _keep_schema(self, schema: pa.Schema) -> str:
        """Store a schema once for all parts that have it; return its digest."""
        if self._kept is not None and self._kept[0] is schema:
            return self._kept[1]
        data = schema.serialize().to_pybytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        self._db.execute("insert or ignore into schemas values (?, ?)", (digest, data))
        self._kept = schema, digest
        return digest

    def _check_format(self) -> None:
        tables = self._db.execute("select name from sqlite_master where name = 'meta'")
        found = self.meta("format") if tables.fetchone() is not None else None
        if found not in (None, FORMAT):
            self._db.close()
            raise ResumeError(f"{self._path} was written by another version of Headrace (format {found}); {AFRESH}")

    def _replay(self, entries: Sequence[Entry]) -> None:
        self._db.execute("begin")
        for entry in entries:
            if entry.fresh:
                for name in keys_of(self._db):
                    self._db.execute(f"delete from {name}")
            apply(self._db, entry.changes)
        self._db.execute("commit")
        if self._remote is not None:
            self._changed = ChangeLog(self._db)

    def _write_snapshot(self) -> None:
        if self._remote is not None:
            with self._lock, open(self._path, "rb") as file:
                self._remote.write_snapshot(file.read())

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Change tables, all of it or nothing, and durably where that is asked for."""
        with self._lock, self._errors():
            self._set_synchronous("full" if durable and self._remote is None else "normal")
            self._db.execute("begin immediate")
            try:
                yield self._db
                if durable and self._remote is not None and self._changed is not None:
                    # The log is the truth: what is not in it is not committed, whatever this copy says.
                    changes = self._changed.take()
                    if changes:
                        self._remote.append(changes)
            except BaseException:
                self._kept = None  # it may be undone
                self._db.execute("rollback")
                raise
            self._db.execute("commit")
        if self._remote is not None and self._remote.wants_snapshot:
            self._write_snapshot()

    def _set_synchronous(self, mode: str) -> None:
        if mode != self._synchronous:
            self._db.execute(f"pragma synchronous={mode}")
            self._synchronous = mode

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._read_only:
                raise SinkError(f"cannot read the journal {self._path}: {error}") from error
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise cannot_write(self._path, OSError(errno.ENOSPC, "")) from error
            raise SinkError(
                f"cannot write the journal {self._path}: {error}; make sure that the disk has room and this user may"
                " write there, then run the same command again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ResumeError(f"the journal {self._path} is damaged ({error}); {AFRESH}") from error


def remove_journal(path: str) -> None:
    """Remove a journal with its side files."""
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
