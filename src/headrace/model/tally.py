"""How the rows of one loaded model have ended so far, and whether going on makes sense."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.errors import AnswerError, StageError
from headrace.records.failure import told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.plan.steps import OnError
    from headrace.records.first_rows import FirstRows


class Tally:
    """Counts rows answered and rows failed, from any number of threads, and stops where failures are not to be borne.

    >>> from headrace.records.first_rows import FirstRows
    >>> tally = Tally("score", "dead_letter", FirstRows())
    >>> tally.settle({1: ValueError("too dark")}, rows=4)
    >>> tally.failed, tally.succeeded
    (1, 3)
    """

    def __init__(self, stage: str, on_error: OnError, first_rows: FirstRows) -> None:
        self._stage, self._on_error, self._first_rows = stage, on_error, first_rows
        self._lock = threading.Lock()
        self.failed = self.succeeded = 0
        self.distrust: AnswerError | None = None
        """What stands in the place of an answer to a row alone, once a handler is known not to answer row by row."""

    def settle(self, failures: Mapping[int, Exception], rows: int) -> None:
        """Count how `rows` rows ended; `failures` are by row of the batch.

        Raises:
            StageError: a row failed under on_error="fail".
            TooManyFailuresError: the first rows have all failed.
        """
        with self._lock:
            self.failed += len(failures)
            self.succeeded += rows - len(failures)
            for error in failures.values():
                self._first_rows.failed(error)
            hopeless = self._first_rows.hopeless(succeeded=self.succeeded)
        if not failures:
            return
        row, error = next(iter(failures.items()))
        if self._on_error == "fail":
            stop = StageError(
                f'stage {self._stage!r} failed on a row: {told(error)}; on_error="dead_letter" sets such rows aside'
            )
            stop.row = row
            raise stop from error
        if hopeless:
            raise self._first_rows.stop(self._stage) from error

    def take_back(self, failures: Iterable[Exception], rows: int) -> None:
        """Count `rows` rows as not settled after all."""
        with self._lock:
            for error in failures:
                self.failed -= 1
                self.succeeded += 1
                self._first_rows.withdraw(error)
            self.succeeded -= rows

    def distrusted(self, error: AnswerError) -> None:
        """Take no more answers to rows alone: `error` is about an answer to several, none of which is to blame."""
        self.distrust = AnswerError(
            f"an answer to this row alone is not taken, since the handler does not answer row by row: {error}"
        )
