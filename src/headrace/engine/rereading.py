"""Reading that goes on behind a fault of the network: the split is read again, and what came before is passed over."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from headrace.errors import SourceError
from headrace.metrics.quantities import duration
from headrace.plan.retry import Retry
from headrace.records.position import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.records.block import Block
    from headrace.records.position import Position

PAUSES = Retry(backoff_secs=1.0, max_backoff_secs=8.0)
"""Clients of stores have attempts of their own; these are for connections that break in the middle of a file."""


def reread(
    read: Callable[[], Iterable[Block]],
    *,
    pause: Callable[[float], None],
    retried: Callable[[], None],
    outage_secs: float,
    clock: Callable[[], float] = time.monotonic,
    luck: Callable[[], float] = random.random,
) -> Iterator[Block]:
    """Yield the blocks of one split, also where faults come between, but for those that last for `outage_secs`.

    Raises:
        SourceError: as `read`, for faults that do not pass, or not in time.
    """
    done: Position = START
    attempt, without = 1, 0.0
    """Attempts, and seconds without an answer, since rows came that had not come before."""
    since = clock()
    while True:
        try:
            for block in read():
                waiting = [block.clip(done, block.end)]
                del block  # it may be large, and is kept by nobody but whoever works on it
                if waiting[0] is not None:
                    done, attempt, without = waiting[0].end, 1, 0.0
                    yield waiting.pop()  # type: ignore[misc]
                since = clock()
            return
        except SourceError as error:
            if not error.may_pass:
                raise
            without += clock() - since
            left = round(outage_secs - without, 3)
            if left <= 0:
                raise SourceError(
                    f"{error}. It was tried again for {duration(without)} (max_outage_secs); what is finished"
                    " stays, and the same command goes on from there"
                ) from error
            since = clock()
        retried()
        pause(min(left, PAUSES.delay_secs(attempt, luck())))
        without, since = without + clock() - since, clock()
        attempt += 1
