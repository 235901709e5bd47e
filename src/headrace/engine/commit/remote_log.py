"""The log of a journal in a store: numbered entries that only one writer can create, and snapshots."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.identity import AFRESH
from headrace.errors import ResumeError, SinkError

if TYPE_CHECKING:
    from headrace.engine.commit.changes import Changes
    from headrace.sinks.store import Store

FORMAT = 1
FOLDER = ".headrace/log"
NAME = re.compile(r"(\d{20})\.(json|sqlite)")
ENTRIES_BETWEEN_SNAPSHOTS = 50
KEPT_CLAIMS = 1_000
"""First entries of so many runs are kept, so that a run that slept through all of them finds its number taken."""
LOOKS = 5
"""How often a log is listed anew when a run beside cleans up between the listing and the reading."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it is read back."""

    number: int
    writer: str
    by: str
    fresh: bool
    """Whether all that came before is void."""
    changes: Changes


class RemoteLog:
    """One output's log: `restore` first, then append; one thread at a time.

    Raises:
        ResumeError: the log is damaged, or of another version.
        SinkError: the store refuses, or another run writes there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writer = uuid4().hex[:12]
        """Names this run, in entries and in the names of what it stages."""
        self._next = 0
        self._since_snapshot = 0
        self._removable: list[str] = []
        """What the next snapshot makes superfluous."""
        self._claims: list[str] = []
        self.claimed = False
        """Whether this run has written its first entry."""

    @property
    def wants_snapshot(self) -> bool:
        """Whether so many entries have come that restoring would take long."""
        return self._since_snapshot >= ENTRIES_BETWEEN_SNAPSHOTS

    def restore(self) -> tuple[bytes | None, list[Entry]]:
        """Return the newest snapshot, and the entries that came after it, in order."""
        for _ in range(LOOKS):
            found = self._read()
            if found is not None:
                return found
        raise ResumeError(f"the journal in {self._store.url}/{FOLDER} is damaged (entries are missing); {AFRESH}")

    def claim(self) -> None:
        """Write this run's first entry: whoever writes for an earlier run finds out at its next one."""
        if not self.claimed:
            self.append({})

    def append(self, changes: Changes, *, fresh: bool = False) -> None:
        """Write an entry, durably, unless another run has written since this one began."""
        name = f"{self._next:020d}.json"
        data = json.dumps(
            {
                "format": FORMAT,
                "writer": self.writer,
                "by": f"{socket.gethostname()}, process {os.getpid()}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
                "fresh": fresh,
                "changes": changes,
            }
        ).encode()
        if not self._store.create(f"{FOLDER}/{name}", data):
            raise self._lost(name)
        (self._removable if self.claimed else self._claims).append(name)
        self.claimed = True
        self._next += 1
        self._since_snapshot += 1
        crash_point("log.entered")

    def write_snapshot(self, data: bytes) -> None:
        """Write what all entries so far come to, and remove what it makes superfluous."""
        name = f"{self._next - 1:020d}.sqlite"
        self._store.put(f"{FOLDER}/{name}", data)
        crash_point("snapshot.written")
        old_claims, self._claims = self._claims[:-KEPT_CLAIMS], self._claims[-KEPT_CLAIMS:]
        self._store.remove(f"{FOLDER}/{old}" for old in [*self._removable, *old_claims] if old != name)
        self._removable, self._since_snapshot = [name], 0

    def _read(self) -> tuple[bytes | None, list[Entry]] | None:
        """Read the log as it is listed now; None if something listed is gone or something is missing."""
        names = sorted(name for name in self._store.sizes(FOLDER) if NAME.fullmatch(name))
        snapshots = [name for name in names if name.endswith(".sqlite")]
        newest = snapshots[-1] if snapshots else ""
        since = int(newest[:20]) + 1 if newest else 0
        entries = [name for name in names if name.endswith(".json")]
        later = [name for name in entries if int(name[:20]) >= since]
        if [int(name[:20]) for name in later] != list(range(since, since + len(later))):
            return None
        snapshot = self._store.get(f"{FOLDER}/{newest}") if newest else None
        read = [self._entry(name) for name in later]
        if (newest and snapshot is None) or None in read:
            return None
        found = [entry for entry in read if entry is not None]
        self._next, self._since_snapshot = since + len(later), len(later)
        self._claims = [name for name in entries if int(name[:20]) < since]
        self._removable = snapshots
        writer = ""
        for name, entry in zip(later, found, strict=True):
            (self._removable if entry.writer == writer else self._claims).append(name)
            writer = entry.writer
        return snapshot, found

    def _entry(self, name: str) -> Entry | None:
        data = self._store.get(f"{FOLDER}/{name}")
        if data is None:
            return None
        where = f"{self._store.url}/{FOLDER}/{name}"
        try:
            value: dict[str, Any] = json.loads(data)
            if value["format"] != FORMAT:
                raise ResumeError(f"{where} was written by another version of Headrace; {AFRESH}")
            return Entry(int(name[:20]), value["writer"], value["by"], value["fresh"], value["changes"])
        except (ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{where} is damaged ({error}); {AFRESH}") from error

    def _lost(self, name: str) -> SinkError:
        entry = self._entry(name)
        by = f" ({entry.by})" if entry is not None else ""
        return SinkError(
            f"another run{by} has begun to write to {self._store.url}, so this one stops; what it had committed"
            " stays. Let one of them run, or choose another output"
        )
