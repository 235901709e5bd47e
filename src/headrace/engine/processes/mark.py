"""What a worker is doing, in memory that it shares with its parent and that outlives it."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from headrace.model.calls import Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.processes.suspects import Sentence

_SIZE = 64
_CHANGES, _STEP, _FIRST, _NTH, _ROWS = range(5)


class Mark:
    """The call that a worker is in: the worker writes it, its parent reads it, also after a death of any kind."""

    def __init__(self, fd: int) -> None:
        """Map an anonymous file; the descriptor stays the caller's."""
        if os.fstat(fd).st_size < _SIZE:
            os.ftruncate(fd, _SIZE)
        self._map = mmap.mmap(fd, _SIZE)
        self.cells = memoryview(self._map).cast("q")
        """Number of changes, step, first row, which of its children, rows; no rows where nothing is under way."""

    def read(self) -> tuple[int, Call | None]:
        """Return how often the mark was changed, and the call under way."""
        try:
            changes, *call = self.cells[: _ROWS + 1].tolist()
        except ValueError:  # closed meanwhile by another thread
            return 0, None
        return changes, Call(*call) if call[-1] else None

    def close(self) -> None:
        """Unmap; safe to call twice."""
        self.cells.release()
        self._map.close()


class MarkedCalls:
    """The calls of a worker, for its parent to see; those that others have died in are refused."""

    def __init__(self, mark: Mark) -> None:
        self._cells = mark.cells
        self._rows = 0
        self._sentences: Mapping[Call, Sentence] = {}

    def refuse(self, sentences: Mapping[Call, Sentence]) -> None:
        """Say which calls must not be made from now on."""
        self._sentences = sentences

    def begin(self, step: int, first: int, nth: int, rows: int) -> None:
        """Mark a call.

        Raises:
            RowTimeout, RowCrash: a worker has hung or died in it before.
        """
        if self._sentences and (sentence := self._sentences.get(Call(step, first, nth, rows))):
            raise sentence.error()
        cells = self._cells
        cells[_STEP] = step
        cells[_FIRST] = first
        cells[_NTH] = nth
        cells[_ROWS] = self._rows = rows
        cells[_CHANGES] += 1

    def end(self) -> None:
        """Mark that no call is under way."""
        self._cells[_ROWS] = 0
        self._cells[_CHANGES] += 1

    def resume(self) -> None:
        """Mark that the last call goes on."""
        self._cells[_ROWS] = self._rows
        self._cells[_CHANGES] += 1
