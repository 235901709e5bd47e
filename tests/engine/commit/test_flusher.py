"""The flusher: what is old is saved, what is small is saved at once for a while, and nothing once there is trouble."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.engine.commit.flusher import Flusher
from headrace.engine.commit.flushing import LIMIT_SECS, SMALL_BYTES
from headrace.engine.commit.trouble import Trouble
from headrace.errors import SinkError


class Held:
    """Rows that came at a time."""

    oldest_arrival: float | None = None
    saves = 0
    error: SinkError | None = None

    def save(self) -> None:
        if self.error is not None:
            raise self.error
        self.saves += 1


class Part:
    spent = True


class Filled:
    """A part that fills, or none."""

    part: Part | None = None
    fill = progress = 0.0
    closes = 0

    def close(self) -> None:
        self.closes += 1
        self.part = None


class Small:
    cost, arrived = SMALL_BYTES, 0.0


class Rows:
    """A size that is counted in rows, so that no part is said to be full soon."""

    class size:
        rows = 10


class Looked:
    """A flusher with what it looks at, without its thread."""

    def __init__(self) -> None:
        self.held, self.filled, self.now = Held(), Filled(), 0.0
        mutex = threading.RLock()
        self.trouble = Trouble(threading.Condition(mutex))
        given: Any = (self.held, Rows())
        self.flusher = Flusher(*given, mutex=mutex, clock=lambda: self.now, trouble=self.trouble)
        self.flusher._filling = self.filled  # type: ignore[assignment]

    def flush(self, *, at: float) -> None:
        self.now = at
        self.flusher.flush()


def test_rows_are_saved_when_they_are_old() -> None:
    looked = Looked()
    looked.flush(at=0.0)
    assert looked.held.saves == 0, "there are none"
    looked.held.oldest_arrival = 0.0
    looked.flush(at=0.01)
    assert looked.held.saves == 0
    looked.flush(at=LIMIT_SECS)
    assert looked.held.saves == 1


def test_a_part_that_stalls_with_rows_that_are_nowhere_else_is_closed() -> None:
    looked = Looked()
    looked.filled.part = Part()
    looked.flush(at=0.0)
    assert looked.filled.closes == 1


def test_what_goes_wrong_is_told_once_and_nothing_is_saved_from_then_on() -> None:
    looked = Looked()
    looked.held.oldest_arrival, looked.held.error = 0.0, SinkError("the disk is full")
    looked.flush(at=10.0)
    with pytest.raises(SinkError, match="the disk is full"):
        looked.trouble.check()
    looked.held.error = None
    looked.flush(at=20.0)
    assert looked.held.saves == 0


def test_small_arrivals_are_saved_at_once_until_there_are_too_many() -> None:
    looked, small = Looked(), Small()
    for _ in range(1_000):
        looked.flusher.arrived(small, ending=False)  # type: ignore[arg-type]
    assert 50 < looked.held.saves < 200
    looked.held.saves, small.arrived = 0, 1_000.0
    looked.flusher.arrived(small, ending=True)  # type: ignore[arg-type]
    small.cost += 1
    looked.flusher.arrived(small, ending=False)  # type: ignore[arg-type]
    assert looked.held.saves == 0, "what ends goes into a part in a moment, and what is large has to wait"


def test_the_first_error_stays() -> None:
    trouble = Trouble(threading.Condition())
    trouble.check()
    trouble.tell(SinkError("first"))
    trouble.tell(SinkError("second"))
    with pytest.raises(SinkError, match="first"):
        trouble.check()
