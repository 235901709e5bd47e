"""Rows that have killed or hung their workers, and when there are too many of them to go on. No processes, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.metrics.quantities import duration
from headrace.records.first_rows import FirstRows

if TYPE_CHECKING:
    from headrace.errors import RowCrash, RowTimeout, TooManyFailuresError

KILLERS = 10
"""If so many rows have killed or hung their workers and none has succeeded, going on is pointless."""
DEAR_KILLERS = 3
"""The same, where a new worker takes longer to start than a call may take."""


class Price(NamedTuple):
    """What a row costs that kills its worker."""

    start_secs: float
    """How long a new worker takes to start, its model to load."""
    timeout_secs: float | None
    """How long the call might have taken that it was killed for; None where that was not why."""

    @property
    def dear(self) -> bool:
        """Whether nearly all time goes into starts."""
        return self.timeout_secs is not None and self.start_secs > self.timeout_secs


class Killers:
    """Counts the rows that cost a worker each.

    Where a worker takes longer to start than a call may take, nearly all time goes into starts: then fewer of the first
    rows are enough, and rows that succeed now and then are no reason to go on.

    >>> from headrace.errors import RowTimeout
    >>> killers = Killers()
    >>> for _ in range(3):
    ...     killers.failed(RowTimeout("took longer than timeout_secs=0.1"))
    >>> killers.too_many(Price(0.05, timeout_secs=0.1), succeeded=0)
    False
    >>> killers.too_many(Price(5.0, timeout_secs=0.1), succeeded=0)
    True
    """

    def __init__(self) -> None:
        self._rows = FirstRows()
        self._count = 0

    def failed(self, error: RowTimeout | RowCrash) -> None:
        """Count a row."""
        self._rows.failed(error)
        self._count += 1

    def too_many(self, price: Price, succeeded: int) -> bool:
        """Say whether to go on is pointless, when so many rows have `succeeded`."""
        if not succeeded:
            return self._count >= (DEAR_KILLERS if price.dear else KILLERS)
        return price.dear and self._count >= KILLERS and self._count > succeeded

    def stop(self, stage: str, price: Price, succeeded: int) -> TooManyFailuresError:
        """Return the error that ends the run."""
        error = self._rows.stop(stage, succeeded=succeeded)
        if price.dear:
            error.args = (
                f"{error}. A new worker took {duration(price.start_secs)} to start, longer than a call may take: raise "
                "timeout_secs, or leave it out",
            )
        return error
