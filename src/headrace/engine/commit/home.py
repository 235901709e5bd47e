"""The hidden folder beside the parts: who owns it, what is in it, and what may be removed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.journal import Journal
from headrace.engine.commit.journal_file import remove_journal
from headrace.engine.commit.segments import Segments
from headrace.errors import OutputExistsError, SinkError
from headrace.sinks.disk import cannot_write
from headrace.sinks.folder import PartReceipt, local_path, make_folder, remove_quietly, sync
from headrace.sinks.store import Store

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.engine.commit.disk_budget import DiskBudget
    from headrace.errors import HeadraceError
    from headrace.model.answer_store import AnswerStore

HIDDEN = ".headrace"
JOURNAL = "journal.sqlite"
DEAD_LETTERS = "_dead_letters"
OUR_PART = re.compile(r"part-\d{5,}\.((csv|jsonl)(\.(gz|zst|bz2))?|parquet)")
OUR_LETTERS = re.compile(r"failures-\d{5,}\.(jsonl|parquet)")


class WorkFolder:
    """What lies where on this machine, for outputs that are local and for those in stores."""

    output: str | None
    storage_options: Mapping[str, Any] | None
    path: str

    @property
    def journal(self) -> str:
        return os.path.join(self.path, JOURNAL)

    @property
    def staging(self) -> str:
        return os.path.join(self.path, "staging")

    @property
    def segments(self) -> str:
        return os.path.join(self.path, "segments")

    def clear_output(self, dead_letters: str | None) -> None:
        """Remove the parts and dead letters that Headrace wrote.

        The journal must be gone or void already: without it no later run takes the remains for a finished part of its
        work.
        """
        if self.output is not None:
            remove_matching(self.output, OUR_PART, self.storage_options)
        if dead_letters is not None:
            remove_matching(dead_letters, OUR_LETTERS, self.storage_options)


class Home(WorkFolder):
    """Where one output keeps its journal, segments and unfinished files.

    For a local output that is `OUT/.headrace/`, held with a lock while a run writes there. A sink without a folder has
    a temporary one instead, so that nothing survives the run and nothing is resumed. URLs have a `RemoteHome`.
    """

    def __init__(self, output: str | None, *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.output = output
        self.storage_options = storage_options
        root = None if output is None else local_path(output)
        self.root = root
        """The output folder where it is local."""
        self._temporary = root is None
        self.path = "" if root is None else os.path.abspath(os.path.join(root, HIDDEN))
        """The hidden folder; a temporary one has no name before `claim`."""
        self._lock: int | None = None
        self._made_root = False

    @property
    def staged_in(self) -> None:
        """Nothing is staged elsewhere than on the disk."""

    @property
    def has_journal(self) -> bool:
        return bool(self.path) and os.path.exists(self.journal)

    def inspect(self, *, if_exists: str) -> None:
        """Raise for an output that this job may not write to; changes nothing.

        Raises:
            OutputExistsError: the output is a file, or holds files that Headrace did not write, or any with "fail".
            SinkError: the output cannot be read.
        """
        if self.root is None:
            return
        try:
            names = sorted(os.listdir(self.root))
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise OutputExistsError(
                f"{_file_in(self.root)} is a file, but the output is a folder; choose another output"
            ) from None
        except OSError as error:
            raise cannot_write(self.root, error) from error
        shown = [n for n in names if not n.startswith(".")]
        judge(self.root, shown, if_exists=if_exists, has_journal=self.has_journal)

    def claim(self) -> None:
        """Make the folders and take the lock.

        Raises:
            SinkError: another process is writing there, or the disk refuses.
        """
        try:
            if self._temporary:
                self.path = tempfile.mkdtemp(prefix="headrace-")
            else:
                self._made_root = not os.path.isdir(self.root or "")
                self._take_lock()
            for folder in (self.staging, self.segments):
                os.makedirs(folder, exist_ok=True)
        except OSError as error:
            self.release()
            raise cannot_write(self.output or self.path, error) from error
        crash_point("open.claimed")

    def open_journal(self) -> Journal:
        """Open the journal, or begin one."""
        return Journal(self.journal)

    def open_segments(self, disk: DiskBudget | None = None) -> Segments:
        """Return the segment files."""
        return Segments(self.segments, disk=disk)

    @property
    def keeps_answers(self) -> bool:
        """Whether answers may lie here for a later run."""
        return self.root is not None

    @property
    def has_answers(self) -> bool:
        """Whether an earlier run has left some."""
        return os.path.exists(self._answers)

    def open_answers(self, journal: Journal) -> AnswerStore:
        """Return the answers that are durable before their rows are; each is on the disk once it is put."""
        from headrace.model.answer_store import AnswerStore

        return AnswerStore(self._answers, durable=True)

    @property
    def _answers(self) -> str:
        return os.path.join(self.path, "answers")

    def mirror(
        self, journal: Journal, segments: Segments, *, mutex: threading.RLock, fail: Callable[[HeadraceError], None]
    ) -> None:
        """Copy segments nowhere: the disk is as safe as the journal beside them."""

    def stage(self, receipt: str, folder: str) -> str:
        """Return the receipt of a prepared file that belongs in `folder`: it is as safe as the journal beside it."""
        return receipt

    def clear(self) -> None:
        """Remove the journal, and with it all that is not visible."""
        remove_journal(self.journal)
        shutil.rmtree(self._answers, ignore_errors=True)
        for folder in (self.staging, self.segments):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, exist_ok=True)

    def name_of(self, receipt: str) -> str:
        """Return what a person calls a part."""
        part = PartReceipt.parse(receipt)
        return receipt if part is None else os.path.join(self.output or "", part.name)

    def file_of(self, receipt: str) -> str:
        """Return the file of a published part of a local output."""
        part = PartReceipt.parse(receipt)
        assert part is not None, receipt
        assert self.root is not None
        return os.path.join(self.root, part.name)

    @contextmanager
    def fetched(self, receipt: str) -> Iterator[str]:
        """Give a published part as a file on this machine, to be opened."""
        yield self.file_of(receipt)

    def remove_parts(self, names: Iterable[str]) -> None:
        """Remove published parts that others have replaced."""
        for name in names:
            remove_quietly(os.path.join(self.root or "", name))

    def size_of(self, receipt: str) -> int | None:
        """Return the bytes of a published part: -1 if it is missing, None where that cannot be told."""
        part = PartReceipt.parse(receipt)
        if part is None or self.root is None:
            return None
        try:
            return os.path.getsize(os.path.join(self.root, part.name))
        except FileNotFoundError:
            return -1

    def part_sizes(self) -> dict[str, int] | None:
        """Return the bytes of all visible files by name; None where there is no folder."""
        if self.root is None:
            return None
        with os.scandir(self.root) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def clear_staging(self) -> None:
        """Remove unfinished files that no journal entry speaks of; the empty folder outlives a power cut."""
        shutil.rmtree(self.staging, ignore_errors=True)
        os.makedirs(self.staging, exist_ok=True)
        sync(self.path)

    def clear_segments(self) -> None:
        """Remove what a job left that ended before it could."""
        shutil.rmtree(self.segments, ignore_errors=True)
        os.makedirs(self.segments, exist_ok=True)

    def clear_work(self) -> None:
        """Remove what only an unfinished job needs."""
        for folder in (self.staging, self.segments):
            shutil.rmtree(folder, ignore_errors=True)

    def vanish(self) -> None:
        """Remove all that the home holds, and the output folder where it was made for it; done before `release`."""
        if self.root is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            if self._made_root:
                with suppress(OSError):  # not empty: somebody else's files came in meanwhile
                    os.rmdir(os.path.dirname(self.path))

    def release(self) -> None:
        """Give the lock back, and remove a temporary home."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary and self.path:
            shutil.rmtree(self.path, ignore_errors=True)

    def _take_lock(self) -> None:
        path = os.path.join(self.path, "lock")
        while self._lock is None:
            make_folder(self.path)
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                raise SinkError(
                    f"another run is writing to {self.output}; wait for it or stop it, or choose another output"
                ) from None
            if not _is_file_at(self._lock, path):  # a run that left nothing has just removed it
                os.close(self._lock)
                self._lock = None


def remove_matching(folder: str, pattern: re.Pattern[str], storage_options: Mapping[str, Any] | None) -> None:
    """Remove the files of a folder, local or not, that Headrace wrote."""
    root = local_path(folder)
    if root is None:
        store = Store(folder, storage_options)
        store.remove(name for name in store.sizes() if pattern.fullmatch(name))
    elif os.path.isdir(root):
        for name in os.listdir(root):
            if pattern.fullmatch(name):
                os.unlink(os.path.join(root, name))


def judge(output: str, names: list[str], *, if_exists: str, has_journal: bool) -> None:
    """Raise for a folder with files that this job may not add to; `names` are those that are not hidden.

    Raises:
        OutputExistsError: says which files, and what to do.
    """
    if if_exists == "fail" and (names or has_journal):
        raise OutputExistsError(
            f'{output} holds files already ({_some(names)}) and if_exists="fail" was asked for; choose another'
            ' output, or pass if_exists="resume" or "overwrite"'
        )
    if if_exists == "resume" and names and not has_journal:
        ours = all(OUR_PART.fullmatch(n) or n == DEAD_LETTERS for n in names)
        advice = 'pass if_exists="overwrite" (--overwrite) to replace them, or ' if ours else ""
        raise OutputExistsError(
            f"{output} holds files that no unfinished job of Headrace knows of ({_some(names)});"
            f" {advice}choose an empty folder"
        )
    if if_exists == "overwrite":
        foreign = [n for n in names if not OUR_PART.fullmatch(n) and n != DEAD_LETTERS]
        if foreign:
            raise OutputExistsError(
                f"{output} holds files that Headrace did not write ({_some(foreign)}), which overwriting would"
                " mix with the result; move them, or choose another output"
            )


def _is_file_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _file_in(path: str) -> str:
    """Return the part of a path that is a file where a folder should be."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
