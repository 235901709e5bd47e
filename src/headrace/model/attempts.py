"""Calls of users' code, made again as a `Retry` says."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import RowCrash, RowTimeout, RowTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.plan.retry import Retry

T = TypeVar("T")


class Attempts:
    """Makes calls, again and again where they fail and are worth it; from any number of threads.

    >>> from headrace.plan.retry import Retry
    >>> attempts = Attempts(Retry(2, on="ZeroDivisionError"), pause=lambda secs: None)
    >>> attempts.call(lambda: 1 / 0)
    Traceback (most recent call last):
    ZeroDivisionError: division by zero
    >>> attempts.made, attempts.repeated
    (2, 1)
    """

    def __init__(
        self,
        retry: Retry,
        *,
        pause: Callable[[float], None] = time.sleep,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`pause` waits so many seconds, and raises where the run is being stopped."""
        self._retry, self._pause, self._luck = retry, pause, luck
        self._last = threading.local()
        self._lock = threading.Lock()
        self.repeated = 0
        """Calls made beyond the first, over all threads."""

    @property
    def made(self) -> int:
        """How often the last call of this thread was made."""
        return getattr(self._last, "made", 1)

    def worthwhile(self, error: BaseException) -> bool:
        """Say whether a call that ended in `error` is made more than once."""
        return self._retry.again(error, 1)

    def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns, or raise what its last attempt raised."""
        attempt = 1
        while True:
            self._last.made = attempt
            try:
                return function()
            except RowTooLarge:
                raise  # what may be freed has been
            except Exception as error:
                if not self._retry.again(error, attempt):
                    raise
                delay_secs = self._retry.delay_secs(attempt, self._luck())
            with self._lock:
                self.repeated += 1
            self._pause(delay_secs)
            attempt += 1


def attempts_behind(error: BaseException, attempts: Attempts | None) -> int:
    """Return how many attempts have ended in an error: those of this thread's last call, or those that killed workers.

    >>> attempts_behind(ValueError(), None)
    1
    """
    if isinstance(error, (RowTimeout, RowCrash)):
        return error.attempt
    return 1 if attempts is None else attempts.made
