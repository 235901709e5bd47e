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
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from headrace.engine.commit.changes import ChangeLog, apply, keys_of
from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.identity import AFRESH, JobIdentity
from headrace.engine.commit.retrying import Answered, RetriedRow
from headrace.errors import ResumeError, SinkError
from headrace.masking import masked
from headrace.records.block import Unit
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
create table if not exists answered (
    part integer, row integer, rows integer, split integer, ordinal integer, place integer,
    primary key (part, row)) without rowid;
create table if not exists replaced (receipt text primary key) without rowid;
"""


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """What a run knew of a split, so that a later run can see whether it has changed.

    >>> SplitRecord(0, "a.csv", "v1", packed=pack([("a.csv", "3 1700")])).files
    [('a.csv', '3 1700')]
    """

    number: int
    label: str
    version: str
    fingerprint: str | None = None
    source: str = ""
    """Name of the step that reads it."""
    packed: bytes | None = None
    closed: bool = False
    """Its files are not what they were: what was finished of it stays, the rest is given up."""

    @property
    def files(self) -> list[tuple[str, str]]:
        """Path and stamp of each file; [] where the source has none."""
        return [(path, stamp) for path, stamp in json.loads(zlib.decompress(self.packed))] if self.packed else []


def pack(files: Iterable[tuple[str, str]]) -> bytes | None:
    """Return paths and stamps in few bytes, since there may be a million; None for none."""
    listed = list(files)
    return zlib.compress(json.dumps(listed).encode(), 1) if listed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """A committed part."""

    number: int
    receipt: str
    rows: int
    nbytes: int
    schema: pa.Schema
    published: bool = False
    rewriting: bool = False
    """It is being replaced under a wider schema, so that its size is not known for sure."""
    answered: tuple[Answered, ...] = ()
    """Where the rows of a retry belong; not read back with the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersRecord:
    """A committed file of dead letters."""

    number: int
    receipt: str
    rows: int
    published: bool = False
    solved: int = 0
    """Letters in the file whose rows have been run again."""
    dropped: bool = False
    """The file is to be removed."""
    failed: tuple[FailedRow, ...] = ()
    """One for each letter, in the order of the file, and those whose letters are elsewhere; not read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What is committed."""

    rows: int = 0
    with_error: int = 0
    parts: int = 0
    nbytes: int = 0
    dead_letters: int = 0
    letters: int = 0
    """Files of dead letters that have been begun, those included that are gone again."""

    def plus(self, parts: Sequence[PartRecord], letters: Sequence[LettersRecord], *, with_error: int) -> Totals:
        """Return the totals after a commit."""
        return Totals(
            rows=self.rows + sum(part.rows for part in parts),
            with_error=self.with_error + with_error,
            parts=self.parts + len(parts),
            nbytes=self.nbytes + sum(part.nbytes for part in parts),
            dead_letters=self.dead_letters + sum(letter.rows for letter in letters),
            letters=self.letters + sum(bool(letter.receipt) for letter in letters),
        )


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
                self._db.execute("pragma synchronous=normal")
            self._check_format()
            if not read_only:
                self._db.executescript(TABLES)
                self._replay(entries)

    def begin(self, identity: JobIdentity, *, dead_letters: str | None) -> None:
        """Note whose journal this is."""
        with self._transaction():
            self._set("format", FORMAT)
            self._set("job", uuid4().hex[:12])
            self._set("identity", json.dumps([identity.components, identity.unknown]))
            if dead_letters is not None and masked(dead_letters) == dead_letters:
                self._set("dead_letters", dead_letters)  # a URL with secrets has to be given again
            self._set("state", "unfinished")

    def sync(self) -> None:
        """Enter in the log what is not durable yet; nothing to do for a file on a disk."""
        if self._remote is not None:
            with self._transaction(durable=True):
                pass

    @property
    def job(self) -> str:
        """What tells this job from others that had the same output: a random text."""
        return self._meta("job") or ""

    @property
    def identity(self) -> JobIdentity | None:
        """Whose journal this is; None for a new one."""
        text = self._meta("identity")
        return None if text is None else JobIdentity(*json.loads(text))

    @property
    def dead_letters(self) -> str | None:
        """The folder of dead letters."""
        return self._meta("dead_letters")

    @property
    def finished(self) -> bool:
        """Whether the job is done."""
        return self._meta("state") == "finished"

    @property
    def hopeless(self) -> bool:
        """Whether every row failed, so that there is nothing to go on from."""
        return self._meta("state") == "hopeless"

    @property
    def frontier(self) -> Place | None:
        """The place up to which all is committed; None before the first commit."""
        text = self._meta("frontier")
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
        with_error = int(self._meta("with_error") or 0)
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
        """Commit, durably, all of it or nothing."""
        crash_point("journal.before")
        total = int(self._meta("with_error") or 0) + with_error
        with self._transaction(durable=True):
            for part in parts:
                self._add_part(part)
            for letter in letters:
                self._add_letters(letter)
            if frontier is not None:
                unit, position = frontier
                self._set("frontier", json.dumps([[unit.split, *unit.lane], position]))
            self._set("with_error", str(total))
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

    # -- retries -------------------------------------------------------------------------------------------------------

    @property
    def retries(self) -> bool:
        """Whether a retry of failed rows has begun and is not finished."""
        return self._meta("retry") == "begun"

    def retrying(self) -> list[RetriedRow]:
        """Return the rows of the retry that has begun."""
        query = "select split, ordinal, place, attempt from retrying order by split, ordinal"
        with self._lock, self._errors():
            found = self._db.execute(query).fetchall()
        return [RetriedRow(split=s, ordinal=o, place=p, attempt=a) for s, o, p, a in found]

    def begin_retry(self, rows: Sequence[RetriedRow]) -> None:
        """Begin to run failed rows again: from here on they count as not done."""
        with self._transaction(durable=True):
            self._db.executemany(
                "insert into retrying values (?, ?, ?, ?)", [(r.split, r.ordinal, r.place, r.attempt) for r in rows]
            )
            chosen = "exists (select 1 from retrying r where r.split = f.split and r.ordinal = f.ordinal)"
            self._db.execute(
                "update letters set (rows, solved) = (select letters.rows - count(*), letters.solved + count(*) from"
                f" failed f where f.letters = letters.number and f.line is not null and {chosen})"
            )
            self._db.execute(f"delete from failed as f where {chosen}")
            self._db.execute("delete from meta where key = 'frontier'")
            self._set("state", "unfinished")
            self._set("retry", "begun")

    def go_on_as(self, identity: JobIdentity) -> None:
        """Note that the functions and models of a job are others from here on."""
        with self._transaction():
            self._set("identity", json.dumps([identity.components, identity.unknown]))

    def lines_kept(self, letters: int) -> list[int]:
        """Return the lines of a file of dead letters whose rows are still failed."""
        query = "select line from failed where letters = ? order by line"
        with self._lock, self._errors():
            return [line for (line,) in self._db.execute(query, (letters,)).fetchall()]

    def finish_retry(self, replaced: Mapping[int, LettersRecord | None]) -> None:
        """Note that a retry is done; `replaced` says what stands in place of files whose letters are solved in part."""
        with self._transaction(durable=True):
            for number, record in replaced.items():
                if record is not None:
                    kept = self._db.execute("select line from failed where letters = ? order by line", (number,))
                    moved = [(record.number, line, number, old) for line, (old,) in enumerate(kept.fetchall())]
                    self._add_letters(record)
                    self._db.executemany(
                        "update failed set letters = ?, line = ? where letters = ? and line = ?", moved
                    )
                self._db.execute("update letters set rows = 0, dropped = 1 where number = ?", (number,))
            self._db.execute("delete from retrying")
            self._set("retry", "finished")
            self._set("state", "finished")

    def forget_dropped(self) -> None:
        """Note that the files of dead letters that were to be removed are gone."""
        with self._transaction():
            self._db.execute("delete from letters where dropped")

    # -- compaction ----------------------------------------------------------------------------------------------------

    def answered(self) -> list[tuple[int, Answered]]:
        """Return where the rows of retries belong, each with the number of its part."""
        query = "select part, row, rows, split, ordinal, place from answered order by part, row"
        with self._lock, self._errors():
            found = self._db.execute(query).fetchall()
        return [
            (part, Answered(row=row, rows=rows, split=split, ordinal=ordinal, place=place))
            for part, row, rows, split, ordinal, place in found
        ]

    def replace_parts(self, parts: Sequence[PartRecord], *, places: Sequence[int]) -> None:
        """Let other parts, with the same rows in the order of the input, be the output.

        `places` are those of the failed rows, as `failed()` gives them.
        """
        with self._transaction(durable=True):
            self._db.execute("insert or ignore into replaced select receipt from parts")
            self._db.execute("delete from parts")
            self._db.execute("delete from answered")
            for part in parts:
                self._add_part(part)
            ids = [id_ for (id_,) in self._db.execute("select id from failed order by id").fetchall()]
            self._db.executemany(
                "update failed set place = ? where id = ?", [(p, i) for p, i in zip(places, ids, strict=True)]
            )

    def replaced(self) -> list[str]:
        """Return the receipts of parts whose files have to go, but for those whose names other parts took over."""
        with self._lock, self._errors():
            return [receipt for (receipt,) in self._db.execute("select receipt from replaced").fetchall()]

    def forget_replaced(self) -> None:
        """Note that the files of replaced parts are gone."""
        with self._transaction():
            self._db.execute("delete from replaced")

    # ------------------------------------------------------------------------------------------------------------------

    def failed_by_split(self) -> dict[int, int]:
        """Return how many rows of each split are in the dead letters."""
        with self._lock, self._errors():
            found = self._db.execute("select split, count(*) from failed group by split").fetchall()
        return dict(found)

    def mark_published(self) -> None:
        """Note that everything committed so far is visible."""
        with self._transaction():
            self._db.execute("update parts set published = 1 where published = 0")
            self._db.execute("update letters set published = 1 where published = 0")

    def mark_rewriting(self, numbers: Iterable[int]) -> None:
        """Note that parts are about to be replaced."""
        with self._transaction(durable=True):
            self._db.executemany("update parts set rewriting = 1 where number = ?", [(n,) for n in numbers])

    def mark_rewritten(self, number: int, schema: pa.Schema, nbytes: int | None) -> None:
        """Note that a part has been replaced."""
        with self._transaction(durable=True):
            self._db.execute(
                "update parts set rewriting = 0, schema = ?, nbytes = coalesce(?, nbytes) where number = ?",
                (self._keep_schema(schema), nbytes, number),
            )

    def finish(self, *, hopeless: bool = False) -> None:
        """Note that the job is done, or that every row failed."""
        with self._transaction(durable=True):
            self._set("state", "hopeless" if hopeless else "finished")
        self._write_snapshot()

    def record_splits(self, splits: Iterable[SplitRecord]) -> None:
        """Keep what is known of splits; a fingerprint once known is not lost to a record without one."""
        rows = [(s.number, s.label, s.version, s.fingerprint, s.source, s.packed, s.closed) for s in splits]
        with self._transaction():
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
        with self._transaction(durable=True):
            self._set("frontier", json.dumps([[unit.split, *unit.lane], position]))
            self._set("state", "unfinished")

    def close(self) -> None:
        """Close the file, leaving one plain file that can be read without writing beside it."""
        with self._lock, self._errors():
            if not self._read_only:
                with suppress(sqlite3.OperationalError):  # somebody is reading it just now
                    self._db.execute("pragma journal_mode=delete")
            self._db.close()

    def _add_part(self, part: PartRecord) -> None:
        self._db.execute(
            "insert into parts (number, receipt, rows, nbytes, schema) values (?, ?, ?, ?, ?)",
            (part.number, part.receipt, part.rows, part.nbytes, self._keep_schema(part.schema)),
        )
        self._db.executemany(
            "insert into answered values (?, ?, ?, ?, ?, ?)",
            [(part.number, a.row, a.rows, a.split, a.ordinal, a.place) for a in part.answered],
        )

    def _add_letters(self, letters: LettersRecord) -> None:
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

    def _meta(self, key: str) -> str | None:
        if not self._begun:
            return None
        with self._lock, self._errors():
            row = self._db.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _set(self, key: str, value: str) -> None:
        self._db.execute("insert or replace into meta values (?, ?)", (key, value))

    def _keep_schema(self, schema: pa.Schema) -> str:
        """Store a schema once for all parts that have it; return its digest."""
        data = schema.serialize().to_pybytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        self._db.execute("insert or ignore into schemas values (?, ?)", (digest, data))
        return digest

    def _check_format(self) -> None:
        tables = self._db.execute("select name from sqlite_master where name = 'meta'")
        found = self._meta("format") if tables.fetchone() is not None else None
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
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        with self._lock, self._errors():
            self._db.execute(f"pragma synchronous={'full' if durable and self._remote is None else 'normal'}")
            self._db.execute("begin immediate")
            try:
                yield
                if durable and self._remote is not None and self._changed is not None:
                    # The log is the truth: what is not in it is not committed, whatever this copy says.
                    changes = self._changed.take()
                    if changes:
                        self._remote.append(changes)
            except BaseException:
                self._db.execute("rollback")
                raise
            self._db.execute("commit")
        if self._remote is not None and self._remote.wants_snapshot:
            self._write_snapshot()

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
