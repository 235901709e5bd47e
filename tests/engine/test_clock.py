"""Clocks: a replica's time is busy, starved or blocked, and nothing else."""

import pytest

from headrace.engine import clock as module
from headrace.engine.clock import StageClock


@pytest.fixture
def now(monkeypatch):
    class Now:
        secs = 100.0

    monkeypatch.setattr(module.time, "perf_counter", lambda: Now.secs)
    return Now


def test_time_goes_to_the_state_it_was_spent_in(now) -> None:
    clock = StageClock()
    with clock.running():
        now.secs += 1
        with clock.starving():
            now.secs += 2
        now.secs += 4
        with clock.blocking():
            now.secs += 8
    now.secs += 1000
    assert clock.totals() == (5.0, 2.0, 8.0)


def test_a_state_that_still_lasts_counts_up_to_now(now) -> None:
    clock = StageClock()
    with clock.running(), clock.starving():
        now.secs += 3
        assert clock.totals() == (0.0, 3.0, 0.0)


def test_nothing_is_counted_before_the_start(now) -> None:
    clock = StageClock()
    now.secs += 50
    assert clock.totals() == (0.0, 0.0, 0.0)


def test_an_error_ends_a_wait(now) -> None:
    clock = StageClock()
    with pytest.raises(TimeoutError), clock.running(), clock.starving():
        now.secs += 1
        raise TimeoutError
    now.secs += 10
    assert clock.totals() == (0.0, 1.0, 0.0)


def test_who_waits_makes_progress_by_blocks_alone_and_who_works_by_ending_or_by_its_task() -> None:
    clock = StageClock()
    with clock.running():
        with clock.starving():
            waiting = clock.progress()
        with clock.starving():
            assert clock.progress() == waiting
            assert clock.doing() == "waits for input"
        clock.moves += 1
        with clock.blocking():
            assert clock.progress() != waiting
            assert clock.doing() == "waits for room in its output"
        working = clock.progress()
        assert clock.progress() == working
        assert clock.doing().startswith("is at work in ")
        clock.task = type("Task", (), {"progress": lambda self: 1, "doing": lambda self: "is at row 1"})()
        assert clock.progress() != working
        assert clock.doing() == "is at row 1"
