"""How many rows of an output have failed, and whether that is more than was allowed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import TooManyFailuresError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.engine.commit.entries import Totals
    from headrace.records.failure import RowFailure

ENOUGH_ROWS = 1_000
"""Rows before their share of failed ones counts; at the end of a run it counts whatever their number."""
MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimit:
    """How many rows of an output may fail, as a number and as a share of all that came to an end."""

    rows: int | None = None
    ratio: float | None = None

    def exceeded(self, *, failed: int, rows: int) -> str | None:
        """Say what is exceeded when `failed` of `rows` rows failed; None if nothing is.

        >>> FailureLimit(rows=2).exceeded(failed=3, rows=10)
        'max_failed_rows=2'
        >>> FailureLimit(ratio=0.5).exceeded(failed=3, rows=10)
        """
        if self.rows is not None and failed > self.rows:
            return f"max_failed_rows={self.rows}"
        if self.ratio is not None and failed > self.ratio * rows:
            return f"max_failed_ratio={self.ratio}"
        return None


class Failures:
    """Counts the rows of one output, failed and other. Not thread-safe.

    `filtered` tells how many rows the steps have filtered out: they count as rows that did not fail.
    """

    def __init__(self, limit: FailureLimit, *, filtered: Callable[[], int] = lambda: 0) -> None:
        self._limit = limit
        self._filtered = filtered
        self._failed = self._rows = self._nulled = 0
        self._causes: Counter[tuple[str, str]] = Counter()
        self._messages: dict[tuple[str, str], str] = {}

    def begin(self, before: Totals, *, finished: bool = False) -> None:
        """Take over what earlier runs counted.

        Raises:
            TooManyFailuresError: it is too much already, and the job is not finished.
        """
        self._failed, self._rows = before.dead_letters + before.with_error, before.rows + before.dead_letters
        if not finished:
            self.check()

    def add(self, failures: Sequence[RowFailure], *, rows: int = 0, nulled: int = 0) -> None:
        """Count failed rows and `rows` that are written, `nulled` of them with nulls in place of a failed answer."""
        self._failed += len(failures) + nulled
        self._rows += len(failures) + rows
        self._nulled += nulled
        for failure in failures:
            cause = failure.stage, failure.error_type
            self._causes[cause] += 1
            self._messages.setdefault(cause, failure.message)

    def check(self, *, at_end: bool = False) -> None:
        """Return if all is within the limit.

        Raises:
            TooManyFailuresError: tells the commonest causes.
        """
        limit = self._limit if at_end or self._rows >= ENOUGH_ROWS else FailureLimit(rows=self._limit.rows)
        if limit.exceeded(failed=self._failed, rows=self._rows) is None:
            return
        rows = self._rows + self._filtered()  # asked for only when it matters
        exceeded = limit.exceeded(failed=self._failed, rows=rows)
        if exceeded is not None:
            raise TooManyFailuresError(
                f"{self._failed:,} of {rows:,} rows failed, more than {exceeded} allows{self._told()}. What is finished"
                " stays: mend the cause or pass a higher limit, and run the same again to go on"
            )

    def _told(self) -> str:
        told = [
            f"{count:,} × {kind} in step {stage!r} (such as: {_short(self._messages[stage, kind])})"
            for (stage, kind), count in self._causes.most_common(3)
        ]
        if self._nulled:
            told.append(f"{self._nulled:,} written with nulls in place of an answer")
        return ": " + "; ".join(told) if told else ", in earlier runs of the job"


def _short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "…"
