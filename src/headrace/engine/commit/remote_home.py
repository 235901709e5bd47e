"""The hidden folder of an output in a store: log, staged objects and segments, with a working copy on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.home import HIDDEN, WorkFolder, judge
from headrace.engine.commit.journal import Journal
from headrace.engine.commit.journal_file import remove_journal
from headrace.engine.commit.mirror import SegmentMirror
from headrace.engine.commit.remote_log import RemoteLog
from headrace.engine.commit.segments import Segments
from headrace.engine.scratch_folder import ScratchFolder
from headrace.sinks.disk import cannot_write
from headrace.sinks.folder import STAGING, PartReceipt, stage
from headrace.sinks.store import Store

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.engine.commit.answer_mirror import AnswerMirror
    from headrace.engine.commit.disk_budget import DiskBudget
    from headrace.errors import HeadraceError

SEGMENTS = f"{HIDDEN}/segments"
ANSWERS = f"{HIDDEN}/answers"


class RemoteHome(WorkFolder):
    """Where an output in a store keeps its journal, segments and unfinished files: all that another machine needs.

    There is no lock: a run begins by claiming the log, and an earlier one that still writes finds out (`RemoteLog`).
    """

    def __init__(self, output: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.output: str = output
        self.storage_options = storage_options
        self.path = ""
        """The folder of the working copy, from `inspect` on."""
        self._held = ExitStack()
        self.has_journal = False
        self._wanted = False
        """Whether there is, or may be, something to do."""
        self._store = Store(output, storage_options)
        self._staged = Store(f"{self._store.url}/{STAGING}", storage_options)
        self._log = RemoteLog(self._store)

    @property
    def staged_in(self) -> str:
        """The URL of what is staged."""
        return self._staged.url

    def inspect(self, *, if_exists: str) -> None:
        """Raise for an output that this job may not write to; changes nothing there.

        Raises:
            OutputExistsError: the output holds files that Headrace did not write, or any with "fail".
            SinkError: the store cannot be reached.
        """
        names = [name for name in self._store.names() if not name.startswith(".")]
        self.restore()
        judge(self.output, names, if_exists=if_exists, has_journal=self.has_journal)
        # Where nothing is to be done nothing is written either; should there be more input, its entry is the claim.
        self._wanted = self._wanted or if_exists != "resume" or bool(self._left_over())

    def claim(self) -> None:
        """Begin to write: from here on an earlier run that still writes is out.

        Raises:
            SinkError: another run began at the same moment, or the store refuses.
        """
        if self._wanted:
            self._log.claim()
        crash_point("open.claimed")

    def open_journal(self) -> Journal:
        """Open the working copy of the journal, and fetch the segments that belong to its job."""
        journal = Journal(self.journal, log=self._log)
        if journal.job:
            folder = f"{SEGMENTS}/{journal.job}"
            for name in self._store.sizes(folder):
                data = self._store.get(f"{folder}/{name}")
                if data is not None:  # a run at work has no use for it any more
                    with open(os.path.join(self.segments, name), "wb") as file:
                        file.write(data)
        return journal

    def open_segments(self, disk: DiskBudget | None = None) -> Segments:
        """Return the segment files of the working copy."""
        return Segments(self.segments, suffix=f"-{self._log.writer}", disk=disk)

    keeps_answers = True

    @property
    def has_answers(self) -> bool:
        """Whether a run of any job has left some."""
        return bool(self._store.keys(ANSWERS))

    def open_answers(self, journal: Journal) -> AnswerMirror:
        """Return the answers that are durable before their rows are, with what earlier runs of the job left."""
        from headrace.engine.commit.answer_mirror import AnswerMirror

        journal.file.sync()  # whose they are has to be known before there are any
        answers = AnswerMirror(self._store, f"{ANSWERS}/{journal.job}", writer=self._log.writer)
        answers.fetch()
        return answers

    def mirror(
        self, journal: Journal, segments: Segments, *, mutex: threading.RLock, fail: Callable[[HeadraceError], None]
    ) -> SegmentMirror:
        """Return what copies segment files into the store; `mutex` guards them, `fail` hears of what goes wrong."""
        folder = f"{SEGMENTS}/{journal.job}"
        return SegmentMirror(self._store, folder, segments, mutex=mutex, before=journal.file.sync, fail=fail)

    def stage(self, receipt: str, folder: str) -> str:
        """Put a prepared file that belongs in `folder` into the store, and return the receipt that says so."""
        return stage(receipt, folder=folder, staging=self._staged, token=self._log.writer)

    def clear(self) -> None:
        """Make void all that the journal says, and remove what is not visible."""
        if self.has_journal:
            self._log.append({}, fresh=True)
        remove_journal(self.journal)
        self.clear_work()
        if self._log.claimed:
            self._store.remove(self._store.keys(ANSWERS))
        self._make_folders()

    def name_of(self, receipt: str) -> str:
        """Return what a person calls a part."""
        part = PartReceipt.parse(receipt)
        return receipt if part is None else f"{self._store.url}/{part.name}"

    @contextmanager
    def fetched(self, receipt: str) -> Iterator[str]:
        """Give a published part as a file on this machine, to be opened; it goes when it is closed."""
        part = PartReceipt.parse(receipt)
        assert part is not None, receipt
        path = os.path.join(self.staging, f"{part.name}.before")
        self._store.get_file(part.name, path)
        try:
            yield path
        finally:
            os.unlink(path)

    def remove_parts(self, names: Iterable[str]) -> None:
        """Remove published parts that others have replaced."""
        self._store.remove(names)

    def size_of(self, receipt: str) -> int | None:
        """Return the bytes of a published part: -1 if it is missing, None where that cannot be told."""
        part = PartReceipt.parse(receipt)
        return None if part is None else self._store.size(part.name)

    def part_sizes(self) -> dict[str, int]:
        """Return the bytes of all visible objects by name."""
        return self._store.sizes()

    def clear_staging(self) -> None:
        """Remove staged objects that no journal entry speaks of."""
        if self._log.claimed:
            self._store.remove(self._store.keys(STAGING))

    def clear_segments(self) -> None:
        """Remove what a job left that ended before it could."""
        if self._log.claimed:
            self._store.remove(self._store.keys(SEGMENTS))
        shutil.rmtree(self.segments, ignore_errors=True)
        self._make_folders()

    def clear_work(self) -> None:
        """Remove what only an unfinished job needs."""
        if self._log.claimed:
            self._store.remove(self._left_over())
        for path in (self.staging, self.segments):
            shutil.rmtree(path, ignore_errors=True)

    def _left_over(self) -> list[str]:
        return [*self._store.keys(STAGING), *self._store.keys(SEGMENTS)]

    def vanish(self) -> None:
        """Remove all but the log's first entries, on which the safety of the next run rests."""
        self.clear_work()

    def release(self) -> None:
        """Remove the working copy."""
        self._held.close()

    def restore(self) -> None:
        """Bring the working copy onto this machine; changes nothing in the store."""
        snapshot, entries = self._log.restore()
        try:
            folder = ScratchFolder()
            self._held.callback(folder.close)
            self.path = str(folder.path)
            self._make_folders()
            if snapshot is not None:
                with open(self.journal, "wb") as file:
                    file.write(snapshot)
            journal = Journal(self.journal, log=self._log, entries=entries)
            self.has_journal, self._wanted = journal.identity is not None, not journal.finished
            journal.close()
        except OSError as error:
            raise cannot_write(self.path or tempfile.gettempdir(), error) from error

    def _make_folders(self) -> None:
        for folder in (self.staging, self.segments):
            os.makedirs(folder, exist_ok=True)
