"""Calls under way: noted by thread, timed, and not timed while they rest."""

import threading

import pytest

from headrace.model.calls import Call, TimedCalls, resting


@pytest.mark.parametrize(
    ("part", "held"),
    [
        (Call(0, 0, 0, 4), True),
        (Call(0, 4, 0, 4), True),
        (Call(0, 7, 2, 1), True),
        (Call(0, 0, 0, 8), False),
        (Call(1, 4, 0, 4), False),
    ],
)
def test_a_part_of_a_batch_is_known_as_such(part, held) -> None:
    assert Call(0, 0, 0, 8).holds(part) is held


def test_each_thread_has_a_call_of_its_own() -> None:
    now = [0.0]
    calls = TimedCalls({0: 5.0, 1: 50.0}, clock=lambda: now[0])
    calls.begin(0, 1, 0, 1)
    now[0] = 3.0
    other = threading.Thread(target=lambda: calls.begin(1, 2, 0, 1))
    other.start()
    other.join()
    assert calls.overdue(5.0) is None
    assert calls.overdue(5.1) == Call(0, 1, 0, 1)
    calls.end()
    assert calls.overdue(53.0) is None
    assert calls.overdue(53.1) == Call(1, 2, 0, 1)


def test_steps_without_a_limit_may_take_as_long_as_they_like() -> None:
    calls = TimedCalls({1: 1.0}, clock=lambda: 0.0)
    calls.begin(0, 1, 0, 1)
    assert calls.overdue(1e9) is None


def test_a_pause_between_attempts_is_no_time_of_the_call() -> None:
    now = [0.0]
    calls = TimedCalls({0: 5.0}, clock=lambda: now[0])
    calls.begin(0, 1, 0, 1)

    def pause(secs: float) -> None:
        now[0] += secs
        assert calls.overdue(now[0]) is None

    resting(calls, pause)(100.0)
    assert calls.overdue(105.0) is None
    assert calls.overdue(105.1) is not None
