"""Answers kept in a folder, found again by their keys: one SQLite file that several processes may use at once.

Answers lie in pages (`answer_pages.py`), each with a checksum. A page whose checksum is wrong is removed, never read;
so is one with Python objects, which Headrace neither writes nor unpickles.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import threading
import zlib
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import SinkError
from headrace.model.answer_pages import Page, pages_of
from headrace.records.plain import array_of_numbers
from headrace.records.tensors import has_objects
from headrace.sinks.folder import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_log = logging.getLogger("headrace.model")

FORMAT = 1
TABLES = """
create table if not exists pages (
    id integer primary key, used integer, checksum integer, answers blob);
create table if not exists answers (key blob primary key, page integer, row integer) without rowid;
create index if not exists pages_used on pages (used);
create index if not exists answers_page on answers (page);
"""
NEXT = "(select coalesce(max(used), 0) + 1 from pages)"
"""The time now, as counted by uses: clocks may be put back."""
ASKED_AT_ONCE = 500
WAIT_SECS = 60.0
"""How long one process waits for another to finish writing."""


@dataclass(frozen=True, slots=True)
class Found:
    """Answers of one schema to some of the keys asked for: row i of `answers` is that to key `places[i]`."""

    places: NDArray[np.int64]
    answers: pa.RecordBatch


@dataclass(slots=True)
class _Entry:
    """Answers that wait for their transaction."""

    pages: Sequence[Page]
    written: bool = field(default=False)


class AnswerStore:
    """The answers in one folder. Thread-safe, and safe with other processes; made when the first answer is put.

    With `durable=True` an answer is on the disk when `put` returns; threads that put at the same time share one wait
    for the disk. Otherwise a power cut may cost the last ones, a killed process none; and a disk that refuses, once the
    store is open, costs answers but not the run: it is told once. Beyond `max_bytes` the pages that were not used for
    longest leave.
    """

    def __init__(self, folder: str, *, durable: bool, max_bytes: int | None = None) -> None:
        self._folder, self._durable, self._max_bytes = folder, durable, max_bytes
        self._path = os.path.join(folder, "answers.sqlite")
        self._db: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self.nbytes = 0
        """Bytes in use when the store was last looked into."""
        self._told = False

    @property
    def exists(self) -> bool:
        """Whether anything was ever put into it."""
        return os.path.exists(self._path)

    def open(self) -> None:
        """Open the file, and make it where there is none; done by itself where it is needed.

        Raises:
            SinkError: it cannot be opened.
        """
        with self._errors(), self._lock:
            self._db = self._db or self._open()

    def get(self, keys: Sequence[bytes]) -> list[Found]:
        """Return the answers that are there; each key is answered once for each time that it is asked.

        Raises:
            SinkError: the store is durable, and cannot be read.
        """
        if not self.exists:
            return []
        wanted = defaultdict[int, list[tuple[bytes, int]]](list)
        pages: dict[int, pa.RecordBatch] = {}
        with self._errors(), self._lock, self._transaction() as db:
            for some in _some(list(dict.fromkeys(keys))):
                marks = ",".join("?" * len(some))
                for key, page, row in db.execute(f"select key, page, row from answers where key in ({marks})", some):
                    wanted[page].append((key, row))
            pages = {page: answers for page in wanted if (answers := self._page(db, page)) is not None}
            if self._max_bytes is not None:
                db.executemany(f"update pages set used = {NEXT} where id = ?", [(page,) for page in pages])
            self.nbytes = _bytes_of(db)
        places = defaultdict[bytes, list[int]](list)
        for place, key in enumerate(keys):
            places[key].append(place)
        return _joined([_found(answers, wanted[page], places) for page, answers in pages.items()])

    def put(self, keys: Sequence[bytes], answers: pa.RecordBatch) -> None:
        """Keep answers; a key that has one already keeps that.

        Raises:
            SinkError: the store is durable, and the disk refuses.
        """
        self.put_pages(pages_of(keys, answers))

    def put_pages(self, pages: Sequence[Page]) -> None:
        """Keep answers that are in pages already.

        Raises:
            SinkError: the store is durable, and the disk refuses.
        """
        if not pages:
            return
        entry = _Entry(pages)
        self._waiting.append(entry)
        with self._errors(), self._lock:
            if entry.written:  # by the thread that had the lock before: one wait for the disk for both
                return
            entries = list(self._waiting)
            with self._transaction() as db:
                for each in entries:
                    self._insert(db, each)
                self._make_room(db)
                self.nbytes = _bytes_of(db)
            for each in entries:
                each.written = True
            del self._waiting[: len(entries)]

    def close(self) -> None:
        """Close the file, which stays."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def remove(self) -> None:
        """Close and remove all of it."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- under the lock --------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._db is None:
            self._db = self._open()
        db = self._db
        db.execute("begin immediate")
        try:
            yield db
            db.execute("commit")
        except BaseException:
            if db.in_transaction:  # SQLite may have rolled it back itself
                db.execute("rollback")
            raise

    def _open(self) -> sqlite3.Connection:
        os.makedirs(self._folder, exist_ok=True)
        if self._durable:
            sync(os.path.dirname(self._folder))
        with open(os.path.join(self._folder, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two processes must not turn a new file into a database at once
            db = sqlite3.connect(self._path, timeout=WAIT_SECS, check_same_thread=False, isolation_level=None)
            try:
                (version,) = db.execute("pragma user_version").fetchone()
                if version not in (0, FORMAT):
                    raise SinkError(
                        f"{self._folder} holds answers of another version of Headrace (format {version}); remove it, or"
                        " choose another folder"
                    )
                db.execute("pragma journal_mode=wal")
                db.execute(f"pragma synchronous={'full' if self._durable else 'normal'}")
                db.execute("pragma journal_size_limit=16777216")
                db.executescript(f"{TABLES} pragma user_version={FORMAT};")
            except BaseException:
                db.close()
                raise
        return db

    def _page(self, db: sqlite3.Connection, page: int) -> pa.RecordBatch | None:
        """Read a page; None, and its end, where it is not what was written."""
        row = db.execute("select checksum, answers from pages where id = ?", (page,)).fetchone()
        if row is not None and zlib.crc32(row[1]) == row[0]:
            with pa.ipc.open_stream(row[1]) as reader:
                if not any(has_objects(field.type) for field in reader.schema):
                    return reader.read_next_batch()
        _remove(db, page)
        return None

    def _insert(self, db: sqlite3.Connection, entry: _Entry) -> None:
        for page in entry.pages:
            values = (zlib.crc32(page.answers), page.answers)
            number = db.execute(f"insert into pages (used, checksum, answers) values ({NEXT}, ?, ?)", values).lastrowid
            keyed = [(key, number, row) for row, key in enumerate(page.keys)]
            db.executemany("insert or ignore into answers values (?, ?, ?)", keyed)

    def _make_room(self, db: sqlite3.Connection) -> None:
        while self._max_bytes is not None and _bytes_of(db) > self._max_bytes:
            oldest = db.execute("select id from pages order by used limit 1").fetchone()
            if oldest is None:
                return
            _remove(db, oldest[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            problem = f"cannot keep answers in {self._folder}: {getattr(error, 'strerror', None) or error}"
            if self._durable or self._db is None:
                raise SinkError(f"{problem}; mend or remove it, or choose another folder") from error
            self._waiting.clear()
            if not self._told:
                self._told = True
                _log.warning("%s; the run goes on, and asks the model for what is not found", problem)


def _found(answers: pa.RecordBatch, rows: list[tuple[bytes, int]], places: dict[bytes, list[int]]) -> Found:
    pairs = sorted((place, row) for key, row in rows for place in places[key])
    found, taken = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Found(found, answers.take(array_of_numbers(taken)))


def _joined(found: list[Found]) -> list[Found]:
    """Put answers of one schema together."""
    alike = defaultdict[bytes, list[Found]](list)
    for each in found:
        alike[each.answers.schema.serialize().to_pybytes()].append(each)
    return [
        Found(np.concatenate([each.places for each in some]), pa.concat_batches([each.answers for each in some]))
        for some in alike.values()
    ]


def _some(items: list[bytes]) -> Iterator[list[bytes]]:
    return (items[at : at + ASKED_AT_ONCE] for at in range(0, len(items), ASKED_AT_ONCE))


def _remove(db: sqlite3.Connection, page: int) -> None:
    db.execute("delete from answers where page = ?", (page,))
    db.execute("delete from pages where id = ?", (page,))


def _bytes_of(db: sqlite3.Connection) -> int:
    """Return the bytes in use; what was removed is used again before the file grows."""
    size, pages, free = (db.execute(f"pragma {n}").fetchone()[0] for n in ("page_size", "page_count", "freelist_count"))
    return int(size * (pages - free))
