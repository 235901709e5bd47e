"""A step's function with what stands around each of its calls: a note of it, and further attempts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headrace.errors import RowError
from headrace.model.attempts import attempts_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.model.attempts import Attempts
    from headrace.model.calls import Calls
    from headrace.records.block import Block

T = TypeVar("T")

_END = object()


class Attended:
    """A function that is called for the rows of one block after another, in their order.

    `calls` is told of each call, if there is anybody to tell; calls that fail are made again as `attempts` says, each
    with a row of its own to change.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        attempts: Attempts | None = None,
        calls: Calls | None = None,
        step: int = 0,
    ) -> None:
        self._function, self._attempts, self._calls, self._step = function, attempts, calls, step
        self._next = 0
        self._ordinals: list[int] | range = range(0)
        self._nths: list[int] | None = None
        self._last_ordinal, self._last_nth = -1, -1

    def enter(self, block: Block, *, afresh: bool) -> None:
        """Say which rows come next; `afresh` where they are the first of those that their stage works on at a time."""
        if self._calls is None:
            return
        if afresh:
            self._last_ordinal = -1
        self._next, self._nths = 0, None
        if block.ordinals is None:
            first = block.start[0]
            self._ordinals = range(first, first + block.num_rows)
            return
        nths = _nths(block.ordinals)
        if block.ordinals[0] == self._last_ordinal:
            nths[block.ordinals == self._last_ordinal] += self._last_nth + 1
        self._ordinals, self._nths = block.ordinals.tolist(), nths.tolist()
        self._last_ordinal, self._last_nth = self._ordinals[-1], self._nths[-1]

    def __call__(self, row: dict[str, Any]) -> Any:
        """Call the function for the next row."""
        if self._calls is not None:  # as `_begin` does it, since this is done for every row
            i = self._next
            self._next = i + 1
            self._calls.begin(self._step, self._ordinals[i], 0 if self._nths is None else self._nths[i], 1)
        if self._attempts is None:
            return self._function(row)
        return self._attempts.call(lambda: _raised(self._function(dict(row))))

    def children(self, row: dict[str, Any]) -> Iterator[Any]:
        """Return or yield what the function makes of the next row; after a failure no child comes a second time."""
        if self._calls is not None:
            self._begin(self._next, 1)
        made: Iterator[Any] = self._function(row) if self._attempts is None else self._retried_children(row)
        return made

    def batch(self, first: int, rows: int, call: Callable[[], T], *, again: bool) -> T:
        """Make a call for a batch of the block's rows; with `again` it is made again where it fails."""
        if self._calls is not None:
            self._begin(first, rows)
        return call() if self._attempts is None or not again else self._attempts.call(call)

    def away(self) -> None:
        """Say that the step waits for something else, or has ended its block."""
        if self._calls is not None:
            self._calls.end()

    def back(self) -> None:
        """Say that the step goes on where it was."""
        if self._calls is not None:
            self._calls.resume()

    def attempts_of(self, error: BaseException) -> int:
        """Return how many attempts the last call took, which ended in `error`."""
        return attempts_behind(error, self._attempts)

    @property
    def repeated(self) -> int:
        """Calls made again so far."""
        return 0 if self._attempts is None else self._attempts.repeated

    def _begin(self, row: int, rows: int) -> None:
        assert self._calls is not None
        self._next = row + rows
        self._calls.begin(self._step, self._ordinals[row], 0 if self._nths is None else self._nths[row], rows)

    def _retried_children(self, row: dict[str, Any]) -> Iterator[Any]:
        assert self._attempts is not None
        handed = 0
        coming: Iterator[Any] | None = None

        def following() -> Any:
            nonlocal coming
            if coming is None:
                coming = islice(iter(_raised(self._function(dict(row)))), handed, None)
            try:
                return next(coming, _END)
            except Exception:
                coming = None
                raise

        while (child := self._attempts.call(following)) is not _END:
            handed += 1
            yield child


def _raised(result: T) -> T:
    if isinstance(result, RowError):
        raise result
    return result


def _nths(ordinals: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Number the rows of each ordinal; equal ones stand together.

    >>> _nths(np.array([3, 3, 3, 7, 9, 9])).tolist()
    [0, 1, 2, 0, 0, 1]
    """
    begins = np.flatnonzero(np.diff(ordinals, prepend=ordinals[0] - 1))
    return np.arange(len(ordinals)) - np.repeat(begins, np.diff(begins, append=len(ordinals)))
