"""The file of a journal: SQLite, with transactions that are durable where that is asked for.

A durable transaction is on the disk (`synchronous=FULL`) when it ends. Where the output is in a store, the file is a
working copy: every durable transaction is entered in a `RemoteLog` first.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headrace.engine.commit.changes import ChangeLog, apply, keys_of
from headrace.engine.commit.identity import AFRESH
from headrace.errors import ResumeError, SinkError
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


class JournalFile:
    """The tables of one journal. Thread-safe.

    Raises:
        ResumeError: the file is damaged, or of another version.
        SinkError: the disk or the store refuses, or another run writes there.
    """

    def __init__(
        self, path: str, *, read_only: bool = False, log: RemoteLog | None = None, entries: Sequence[Entry] = ()
    ) -> None:
        """Open the file at `path`, or make it; `entries` of the log have come since the file was written."""
        self._path = path
        self._read_only = read_only
        self._remote = log
        self._changed: ChangeLog | None = None
        self._lock = threading.Lock()
        self._synchronous = ""
        self._begun = True
        self.undone = 0
        """How many transactions came to nothing."""
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

    def select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds."""
        with self._lock, self._errors():
            return self._db.execute(query, values).fetchall()

    def meta(self, key: str) -> str | None:
        """Return one of the texts that are kept by name."""
        if not self._begun:
            return None
        found = self.select("select value from meta where key = ?", key)
        return str(found[0][0]) if found else None

    def set_meta(self, key: str, value: str) -> None:
        """Keep a text by name; inside a transaction."""
        self._db.execute("insert or replace into meta values (?, ?)", (key, value))

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
                self.undone += 1
                self._db.execute("rollback")
                raise
            self._db.execute("commit")
        if self._remote is not None and self._remote.wants_snapshot:
            self.write_snapshot()

    def sync(self) -> None:
        """Enter in the log what is not durable yet; nothing to do for a file on a disk."""
        if self._remote is not None:
            with self.transaction(durable=True):
                pass

    def write_snapshot(self) -> None:
        """Put the file beside its log, of which earlier entries may go then; nothing to do for a file on a disk."""
        if self._remote is not None:
            with self._lock, open(self._path, "rb") as file:
                self._remote.write_snapshot(file.read())

    def close(self) -> None:
        """Close the file, leaving one plain file that can be read without writing beside it."""
        with self._lock, self._errors():
            if not self._read_only:
                with suppress(sqlite3.OperationalError):  # somebody is reading it just now
                    self._db.execute("pragma journal_mode=delete")
            self._db.close()

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
