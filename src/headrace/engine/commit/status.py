"""What an output folder says about itself, for `headrace status`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.home import HIDDEN, JOURNAL
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.input_status import InputStatus, input_status
from headrace.engine.commit.journal import Journal
from headrace.engine.commit.opening import progress_of
from headrace.engine.commit.segments import rows_beyond
from headrace.sinks.folder import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStatus:
    """How far the job of one output folder has come; read without disturbing a run."""

    folder: str
    state: Literal["finished", "unfinished", "never ran"]
    rows: int = 0
    """Rows in parts."""
    parts: int = 0
    nbytes: int = 0
    dead_letters: int = 0
    dead_letters_folder: str | None = None
    waiting_rows: int = 0
    """Finished rows that wait in segments for their part."""
    retrying: int = 0
    """Failed rows of a retry that has begun and is not finished."""
    identity: JobIdentity = field(default_factory=JobIdentity)
    inputs: tuple[InputStatus, ...] = ()
    """The input, file by file."""


def read_status(folder: str, *, storage_options: Mapping[str, Any] | None = None) -> OutputStatus:
    """Read how far the job of an output, a folder or a URL, has come.

    >>> read_status("no-such-folder").state
    'never ran'

    Raises:
        ResumeError: the journal is damaged or of another version.
        SinkError: the store cannot be reached.
    """
    root = local_path(folder)
    if root is not None:
        home = os.path.join(root, HIDDEN)
        path = os.path.join(home, JOURNAL)
        if not os.path.exists(path):
            return OutputStatus(folder=folder, state="never ran")
        return _status(folder, Journal(path, read_only=True), os.path.join(home, "segments"))
    from headrace.engine.commit.remote_home import RemoteHome

    remote = RemoteHome(folder, storage_options=storage_options)
    try:
        remote.restore()
        return _status(folder, remote.open_journal(), remote.segments)
    finally:
        remote.release()


def _status(folder: str, journal: Journal, segments: str) -> OutputStatus:
    try:
        identity = journal.identity
        if identity is None:
            return OutputStatus(folder=folder, state="never ran")
        totals = journal.totals
        return OutputStatus(
            folder=folder,
            state="finished" if journal.finished else "unfinished",
            rows=totals.rows,
            parts=totals.parts,
            nbytes=totals.nbytes,
            dead_letters=totals.dead_letters,
            dead_letters_folder=journal.dead_letters,
            waiting_rows=rows_beyond(segments, journal.frontier),
            retrying=len(Amendments(journal).retrying()),
            identity=identity,
            inputs=input_status(journal.splits(), progress_of(journal, segments), journal.failed_by_split()),
        )
    finally:
        journal.close()
