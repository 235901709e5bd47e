"""A disk whose power may be cut: what survives is what was fsynced, and at worst nothing else.

The files are real; the disk remembers what each held when it was last synced. A rename happens as a whole, as journaling
file systems have it: a file that is gone from one folder for good is in the other for good. SQLite syncs out of our sight: by its own
account a transaction with synchronous=FULL is on the disk when it ends, with the names of the journal's files.
"""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.journal_file import JournalFile
from headrace.sinks.folder import sync


@dataclass(eq=False)
class Node:
    """A file or folder, held open so that its number is not given to another."""

    descriptor: int
    is_folder: bool
    content: bytes = b""
    """What a file held when it was last synced; nothing before."""
    latest: bytes | None = None
    """For files of SQLite: what they held between two transactions."""
    names: dict[str, Node] = field(default_factory=dict)
    """What a folder held when it was last synced."""


class Disk:
    """Sees what is synced below a folder, and makes copies of what would be left after a cut."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, Node] = {}
        self._lock = threading.RLock()

    def synced(self, path: str) -> None:
        """Note that a file or folder is on the disk as it is now."""
        with self._lock:
            node = self._node(path)
            if node.is_folder:
                before, node.names = node.names, self._children(node, path)
                for name, child in before.items():
                    if name not in node.names and os.fstat(child.descriptor).st_nlink:
                        self._moved(child)
            else:
                node.content = _content(node)

    def transaction_ended(self, journal: str, *, durable: bool) -> None:
        """Note that SQLite has ended a transaction."""
        with self._lock:
            for path in (journal, f"{journal}-wal"):
                if os.path.exists(path):
                    node = self._node(path)
                    node.latest = _content(node)
                    if durable:
                        node.content = node.latest
                        self._node(os.path.dirname(path)).names[os.path.basename(path)] = node

    def copy_what_is_left(self, target: Path, draw: random.Random | None = None) -> None:
        """Write what a cut at this moment leaves: with `draw` some of what was not synced is left too, as it may be."""
        with self._lock:
            for name, node in self._children(self._node(str(self._root)), str(self._root)).items():
                self._copy(node, target / name, draw, journal="")

    def _moved(self, child: Node) -> None:
        for folder in [node for node in self._nodes.values() if node.is_folder]:
            with suppress(FileNotFoundError):  # a folder that was removed, and is known by its descriptor only
                now = self._children(folder, folder.descriptor)
                folder.names.update((name, node) for name, node in now.items() if node is child)

    def _copy(self, node: Node, target: Path, draw: random.Random | None, journal: str) -> None:
        if not node.is_folder:
            target.write_bytes(_left(node, draw, journal))
            return
        target.mkdir(parents=True)
        # SQLite's files belong together: both are as of the same transaction.
        journal = "latest" if draw is not None and draw.random() < 0.5 else "durable"
        names = dict(node.names)
        if draw is not None:
            now = self._children(node, node.descriptor)
            for name in sorted(names.keys() | now.keys()):
                if name.startswith("journal.sqlite"):
                    if journal == "latest" and name in now:
                        names[name] = now[name]
                elif draw.random() < 0.5:
                    names.pop(name, None)
                    if name in now:
                        names[name] = now[name]
        for name, child in names.items():
            self._copy(child, target / name, draw, journal)

    def _children(self, node: Node, where: str | int) -> dict[str, Node]:
        found = {}
        for name in os.listdir(where):
            try:
                found[name] = self._node(name, folder=node.descriptor)
            except FileNotFoundError:  # renamed since it was listed
                continue
        return found

    def _node(self, path: str, folder: int | None = None) -> Node:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
        info = os.fstat(descriptor)
        known = self._nodes.get(info.st_ino)
        if known is not None:
            os.close(descriptor)
            return known
        return self._nodes.setdefault(info.st_ino, Node(descriptor, stat.S_ISDIR(info.st_mode)))

    def close(self) -> None:
        for node in self._nodes.values():
            os.close(node.descriptor)


def _content(node: Node) -> bytes:
    return os.pread(node.descriptor, os.fstat(node.descriptor).st_size, 0)


def _left(node: Node, draw: random.Random | None, journal: str) -> bytes:
    if node.latest is not None:
        return node.latest if journal == "latest" else node.content
    now = _content(node)
    if draw is None or len(now) < len(node.content):
        return node.content
    return now[: draw.choice([len(node.content), draw.randint(len(node.content), len(now)), len(now)])]


@contextmanager
def powered(root: Path, at_step: Callable[[Disk, str], None]) -> Iterator[Disk]:
    """Let a disk see all syncing, and call `at_step` at every crash point that is passed.

    The real disk is spared: nothing is synced there.
    """
    disk = Disk(root)
    transaction, close, made = JournalFile.transaction, JournalFile.close, JournalFile.__init__

    @contextmanager
    def watched(journal: JournalFile, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        with transaction(journal, durable=False) as db:
            yield db
        disk.transaction_ended(journal._path, durable=durable)

    def opened(journal: JournalFile, path: str, **options: object) -> None:
        made(journal, path, **options)  # type: ignore[arg-type]
        disk.transaction_ended(path, durable=False)

    def closed(journal: JournalFile) -> None:
        close(journal)
        disk.transaction_ended(journal._path, durable=True)

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("headrace."):
                if vars(module).get("crash_point") is crash_point:
                    patch.setattr(module, "crash_point", lambda step: at_step(disk, step))
                if vars(module).get("sync") is sync:
                    patch.setattr(module, "sync", disk.synced)
        patch.setattr(JournalFile, "transaction", watched)
        patch.setattr(JournalFile, "__init__", opened)
        patch.setattr(JournalFile, "close", closed)
        try:
            yield disk
        finally:
            disk.close()
