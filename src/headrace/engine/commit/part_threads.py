"""The threads that a part passes through: encoded while it fills, sealed when it is full, committed in its turn."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.engine.commit.crash import crash_point
from headrace.errors import HeadraceError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.engine.commit.encoder import Encoder
    from headrace.engine.commit.filling import Filling
    from headrace.engine.commit.holdings import Holdings
    from headrace.engine.commit.part import Part
    from headrace.engine.commit.publisher import Publisher
    from headrace.engine.commit.sizing import Sizing
    from headrace.engine.commit.trouble import Trouble

MAX_PARTS_BEING_ENCODED = 2
MAX_PARTS_BEING_SEALED = 2


class PartThreads:
    """Takes parts from the first helping to the commit, which is in the order of the input."""

    def __init__(
        self,
        sink_name: str,
        encoder: Encoder,
        publisher: Publisher,
        holdings: Holdings,
        sizing: Sizing,
        *,
        changed: threading.Condition,
        trouble: Trouble,
    ) -> None:
        """`changed` guards parts and holdings, and is notified as parts go on."""
        self._sink_name, self._encoder, self._publisher = sink_name, encoder, publisher
        self._holdings, self._sizing = holdings, sizing
        self._changed, self._trouble = changed, trouble
        self._stopping = False
        self._encoding = ThreadPoolExecutor(MAX_PARTS_BEING_ENCODED, thread_name_prefix="headrace-encode")
        # Sealing and committing wait for the disk, and need not keep an encoder from its work.
        self._sealing = ThreadPoolExecutor(MAX_PARTS_BEING_SEALED, thread_name_prefix="headrace-seal")
        self._room_to_seal = threading.Semaphore(2 * MAX_PARTS_BEING_SEALED)
        self._committing = ThreadPoolExecutor(1, thread_name_prefix="headrace-commit")
        self._commit_lock = threading.Lock()

    def watch(self, filling: Filling) -> None:
        """Commit the parts that are filled there."""
        self._filling = filling

    def start(self, part: Part) -> None:
        """Let a part be encoded as far as it is there; under the lock of `changed`."""
        if not part.busy:
            part.busy = True
            self._encoding.submit(self._encode, part)

    def stop(self) -> None:
        """End the threads, once they have done what they have; nothing is committed by them any more."""
        self._stopping = True
        for pool in (self._encoding, self._sealing, self._committing):
            pool.shutdown(wait=True)

    def commit_prepared(self) -> None:
        """Commit all parts that can be."""
        with self._failing(), self._commit_lock:
            while True:
                with self._changed:
                    group = self._filling.ready()
                    self._changed.notify_all()
                if not group:
                    return
                self._publisher.commit(group)
                with self._changed:
                    for part in group:
                        self._filling.closed.popleft()
                        self._sizing.observe(nbytes=part.nbytes, written=part.file_bytes)
                        for piece in part.pieces:
                            self._holdings.release(piece)
                    self._changed.notify_all()
                crash_point("segments.released")

    def _encode(self, part: Part) -> None:
        with self._failing():
            if self._encoder.run(part):
                self._room_to_seal.acquire()  # so that a slow disk slows the encoders down in the end
                self._sealing.submit(self._seal, part)

    def _seal(self, part: Part) -> None:
        with self._failing():
            try:
                self._encoder.seal(part)
            finally:
                self._room_to_seal.release()
            if not self._stopping:
                self._committing.submit(self.commit_prepared)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Tell of what goes wrong, as the error that whoever puts rows will meet."""
        try:
            yield
        except HeadraceError as error:
            self._trouble.tell(error)
        except Exception as error:  # whatever a user's sink raises
            self._trouble.tell(SinkError(f"{self._sink_name} failed: {type(error).__name__}: {error}"))
