"""What the threads of a run share: the first error stops them all, and the end is the end of the last."""

import threading

from headrace.engine.channel import Cancelled
from headrace.engine.state import RunState

LONG = 10.0


def test_the_run_ends_with_its_last_thread_and_not_before_all_are_started() -> None:
    state = RunState()
    go = threading.Event()
    state.spawn(lambda: None, "short")
    state.spawn(go.wait, "long")
    assert not state.wait(0)
    state.all_started()
    assert not state.wait(0)
    go.set()
    assert state.wait(LONG)
    assert state.error is None


def test_threads_that_threads_start_count_too() -> None:
    state = RunState()
    go = threading.Event()
    state.spawn(lambda: state.spawn(go.wait, "child"), "parent")
    state.all_started()
    assert not state.wait(0)
    go.set()
    assert state.wait(LONG)


def test_the_first_error_stands_and_wakes_the_others() -> None:
    state = RunState()
    woken = threading.Event()
    state.on_stop(woken.set)
    first = ValueError("first")

    def late() -> None:
        woken.wait(LONG)
        raise KeyError("late")

    def early() -> None:
        raise first

    state.spawn(late, "late")
    state.spawn(early, "early")
    state.all_started()
    assert state.wait(LONG)
    assert state.stopping.is_set()
    assert state.error is first


def test_being_cancelled_is_no_error() -> None:
    state = RunState()

    def cancelled() -> None:
        raise Cancelled

    state.spawn(cancelled, "x")
    state.all_started()
    assert state.wait(LONG)
    assert state.error is None


def test_what_is_registered_after_the_stop_runs_at_once() -> None:
    state = RunState()
    state.stop()
    woken = threading.Event()
    state.on_stop(woken.set)
    assert woken.is_set()


def test_a_second_stop_does_nothing() -> None:
    state = RunState()
    calls: list[int] = []
    state.on_stop(lambda: calls.append(1))
    state.stop()
    state.stop()
    assert calls == [1]
