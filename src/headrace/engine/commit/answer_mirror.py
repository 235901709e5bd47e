"""Answers that are durable before their rows are, of an output in a store: a copy here, and small objects there."""

from __future__ import annotations

import logging
import tempfile
import threading
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.commit.crash import crash_point
from headrace.engine.scratch_folder import ScratchFolder
from headrace.errors import HeadraceError
from headrace.model.answer_pages import Page, pages_of
from headrace.model.answer_store import AnswerStore
from headrace.records.keys import KEY_BYTES
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model.answer_store import Found
    from headrace.sinks.store import Store

_log = logging.getLogger("headrace.commit")

MAGIC = b"HRA1"
OBJECT = pa.schema({"keys": pa.binary(), "answers": pa.binary()})
PAUSE_SECS = 0.5
"""Between two objects: a request costs more than the answers in it, a lost answer more than a request."""
MOST_SMALL = 64
FULL_BYTES = 8 * 2**20
"""An object of this size is not put together with others any more."""
MOST_WAITING_BYTES = 16 * 2**20
"""Beyond it whoever has answers waits for the store."""


class AnswerMirror:
    """The answers of one job; what is put is in the store within a moment, and found by a run on another machine.

    A thread puts what has come as one object, at once where it has been quiet, and then every half second. Small
    objects become one now and then, so that a restore asks for few, however often and slowly answers came.

    Raises:
        SinkError: from any method, the store or the disk refuses.
    """

    def __init__(self, store: Store, folder: str, *, writer: str) -> None:
        """`writer` tells what this run puts into `folder` from what others put there."""
        self._store, self._folder, self._writer = store, folder, writer
        self._held = ExitStack()
        """The folder of the copy, from `fetch` on. Not the output's: outputs let theirs go one by one, as they end."""
        self._changed = threading.Condition()
        self._waiting: list[Page] = []
        self._error: HeadraceError | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._number = 0
        self._small: list[str] = []
        """Objects that will become one, and what is in them."""
        self._in_small: list[Page] = []

    @property
    def exists(self) -> bool:
        """Whether anything was ever put into it, as far as it has been fetched."""
        return self._local.exists

    @property
    def nbytes(self) -> int:
        """Bytes of the copy on this machine."""
        return self._local.nbytes

    def fetch(self) -> None:
        """Bring what earlier runs left onto this machine; an object that is damaged is passed over, and told."""
        try:
            folder = ScratchFolder()
        except OSError as error:
            raise cannot_write(tempfile.gettempdir(), error) from error
        self._held.callback(folder.close)
        self._local = AnswerStore(str(folder.path / "answers"), durable=True)
        try:
            self._fetch()
        except BaseException:
            self._let_go()
            raise

    def get(self, keys: Sequence[bytes]) -> list[Found]:
        """Return the answers that are there."""
        return self._local.get(keys)

    def put(self, keys: Sequence[bytes], answers: pa.RecordBatch) -> None:
        """Keep answers; they are in the store a moment later."""
        pages = pages_of(keys, answers)
        if not pages:
            return
        self._local.put_pages(pages)
        with self._changed:
            self._changed.wait_for(lambda: self._error or _nbytes(self._waiting) <= MOST_WAITING_BYTES)
            if self._error is not None:
                raise self._error
            self._waiting += pages
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-answers", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Put what waits, and let the copy go. Raises nothing: what the store does not take is told."""
        self._stop()
        if self._error is None:
            try:
                self._upload()
            except HeadraceError as error:
                _log.warning("the last answers are not kept, and will be asked for again: %s", error)
        self._let_go()

    def remove(self) -> None:
        """Remove all of it, here and there. Raises nothing: what stays is removed by the next run."""
        self._stop()
        self._waiting = []
        self._let_go()
        try:
            self._store.remove(self._store.keys(self._folder))
        except HeadraceError as error:
            _log.warning("answers that are needed no more stay in %s/%s: %s", self._store.url, self._folder, error)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._comes():
            try:
                self._upload()
            except HeadraceError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            self._stopped.wait(PAUSE_SECS)

    def _comes(self) -> bool:
        """Wait for answers; False when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped.is_set())
            return not self._stopped.is_set()

    def _stop(self) -> None:
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _fetch(self) -> None:
        for name in sorted(self._store.sizes(self._folder)):
            self._number = max(self._number, int(name.split("-")[0]) + 1)
            data = self._store.get(f"{self._folder}/{name}")
            pages = [] if data is None else decode(data)
            if pages is None:
                _log.warning("%s/%s/%s is damaged; its rows are asked for again", self._store.url, self._folder, name)
                continue
            self._local.put_pages(pages)
            if data is not None and _nbytes(self._in_small) + _nbytes(pages) < FULL_BYTES:
                self._small.append(name)
                self._in_small += pages

    def _let_go(self) -> None:
        self._local.close()
        self._held.close()

    def _upload(self) -> None:
        with self._changed:
            pages, self._waiting = self._waiting, []
            self._changed.notify_all()
        if not pages:
            return
        self._in_small += pages
        replaced: list[str] = []
        if len(self._small) >= MOST_SMALL or _nbytes(self._in_small) >= FULL_BYTES:
            pages, replaced, self._small = self._in_small, self._small, []
        name = f"{self._number:08d}-{self._writer}"
        self._number += 1
        self._store.put(f"{self._folder}/{name}", encode(pages))
        crash_point("answers.kept")
        self._store.remove(f"{self._folder}/{old}" for old in replaced)
        self._small.append(name)
        if _nbytes(self._in_small) >= FULL_BYTES:
            self._small, self._in_small = [], []


def encode(pages: Sequence[Page]) -> bytes:
    """Return pages as the bytes of one object, packed, with a checksum.

    >>> page = Page((b"k" * 16,), b"rows")
    >>> decode(encode([page])) == [page]
    True
    """
    stream = pa.BufferOutputStream()
    batch = pa.record_batch([[b"".join(page.keys) for page in pages], [page.answers for page in pages]], schema=OBJECT)
    with pa.ipc.new_stream(stream, OBJECT, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    data: bytes = stream.getvalue().to_pybytes()
    return MAGIC + zlib.crc32(data).to_bytes(4, "little") + data


def decode(data: bytes) -> list[Page] | None:
    """Return the pages of an object; None where its bytes are not what was written."""
    if data[:4] != MAGIC or zlib.crc32(data[8:]) != int.from_bytes(data[4:8], "little"):
        return None
    with pa.ipc.open_stream(data[8:]) as reader:
        batch = reader.read_next_batch()
    return [
        Page(tuple(keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)), answers)
        for keys, answers in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def _nbytes(pages: Sequence[Page]) -> int:
    return sum(page.nbytes for page in pages)
