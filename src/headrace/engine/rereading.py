"""Reading that goes on behind a fault of the network: the split is read again, and what came before is passed over."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from headrace.errors import SourceError
from headrace.plan.retry import Retry
from headrace.records.position import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.records.block import Block
    from headrace.records.position import Position

READ_RETRY = Retry(4, backoff_secs=1.0)
"""Clients of stores have attempts of their own; these are for connections that break in the middle of a file."""


def reread(
    read: Callable[[], Iterable[Block]],
    *,
    pause: Callable[[float], None],
    retried: Callable[[], None],
    retry: Retry = READ_RETRY,
    luck: Callable[[], float] = random.random,
) -> Iterator[Block]:
    """Yield the blocks of one split, whatever it takes within `retry`; any progress gives all attempts back.

    Raises:
        SourceError: as `read`, for faults that do not pass, or not in time.
    """
    done: Position = START
    attempt = 1
    while True:
        try:
            for block in read():
                waiting = [block.clip(done, block.end)]
                del block  # it may be large, and is kept by nobody but whoever works on it
                if waiting[0] is not None:
                    done, attempt = waiting[0].end, 1
                    yield waiting.pop()  # type: ignore[misc]
            return
        except SourceError as error:
            if not error.may_pass or attempt >= retry.attempts:
                raise
        retried()
        pause(retry.delay_secs(attempt, luck()))
        attempt += 1
