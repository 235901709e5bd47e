"""A stranger who looks at an output all the time, and knows nothing of Headrace: only files with rows in them."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

LOOK_SECS = 0.02


def read_file(path: Path) -> pa.Table:
    """Read one file whole; raises where it is torn.

    Dead letters are told by their folder: their row is one level down.
    """
    if path.suffix == ".parquet":
        return pyarrow.parquet.ParquetFile(path).read()
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)
    if path.suffix != ".jsonl":
        raise ValueError(f"{path}: what is this?")
    *lines, rest = path.read_text(encoding="utf-8").split("\n")
    if rest:
        raise ValueError(f"{path} ends in the middle of a line")
    rows = [json.loads(line) for line in lines]
    if path.parent.name == "_dead_letters":
        rows = [row["row"] for row in rows]
    return pa.Table.from_pylist(rows)


def files_in(folder: Path) -> list[Path]:
    """Return what a reader of a folder sees: files whose names are not hidden (nor begin with an underscore)."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if not p.name.startswith((".", "_")) and p.is_file())


@dataclass(slots=True)
class Watch:
    """What has been seen of one folder; `look` again and again.

    Files that have been seen must stay, with the rows that they had; all must be whole; no row may be there twice.
    """

    folder: Path
    key: str
    now: Callable[[], float] = time.monotonic
    complaints: list[str] = field(default_factory=list)
    seen_at: dict[int, float] = field(default_factory=dict)
    """When each row was first seen."""
    _files: dict[Path, tuple[tuple[int, int, int], frozenset[int]]] = field(default_factory=dict)
    """State and rows of each file."""

    def look(self) -> None:
        """Look once."""
        found = files_in(self.folder)
        for path in self._files.keys() - set(found):
            self.complaints.append(f"{path} has gone")
            del self._files[path]
        for path in found:
            try:
                self._look_at(path)
            except Exception as error:  # whatever a reader may say of a torn file
                self.complaints.append(f"{path} cannot be read: {type(error).__name__}: {error}")

    def _look_at(self, path: Path) -> None:
        info = path.stat()
        state = (info.st_ino, info.st_size, info.st_mtime_ns)
        known_state, known_rows = self._files.get(path, (None, None))
        if state == known_state:
            return
        table = read_file(path)
        ids: list[int] = table[self.key].to_pylist() if table.num_rows else []
        rows = frozenset(ids)
        if known_rows is not None and rows != known_rows:
            self.complaints.append(f"{path} has other rows than before")
        others = [rows & theirs for other, (_, theirs) in self._files.items() if other != path]
        if len(rows) < len(ids) or any(others):
            self.complaints.append(f"{path} holds rows that are there twice")
        self._files[path] = state, rows
        for row in rows:
            self.seen_at.setdefault(row, self.now())


class Watching:
    """Looks at several folders in a thread, for as long as the `with` lasts.

    It looks once more at the end, so that a state that lasts is never missed.
    """

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches
        self.looks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watching", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    @property
    def complaints(self) -> list[str]:
        """What was not as it should be."""
        return [complaint for watch in self._watches.values() for complaint in watch.complaints]

    def safe_at(self, row: int, names: Sequence[str]) -> float:
        """Return when the row had been seen by all of these watches; infinity where one has not seen it."""
        return max(self._watches[name].seen_at.get(row, float("inf")) for name in names)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECS):
            self._look()

    def _look(self) -> None:
        for watch in self._watches.values():
            watch.look()
        self.looks += 1


def rows_of(folder: Path, key: str, answer: str | None) -> list[tuple[int, Any]]:
    """Return (key, answer) of every row of a folder; the answer is None where none is asked for."""
    rows: list[tuple[int, Any]] = []
    for path in files_in(folder):
        table = read_file(path)
        if table.num_rows:
            answers = [None] * table.num_rows if answer is None else table[answer].to_pylist()
            rows += zip(table[key].to_pylist(), answers, strict=True)
    return rows
