"""Crews: one less for each time that memory runs out, never none, and nobody waits for ever."""

import threading
from contextlib import ExitStack

import pytest

from headrace.engine.channel import Cancelled
from headrace.engine.processes.crew import Crew

LONG = 10.0


def test_nobody_is_dismissed_from_a_crew_that_has_memory() -> None:
    crew = Crew()
    with crew.membership() as one, crew.membership() as two:
        assert not one.dismissed()
        assert not two.dismissed()


def test_of_three_one_is_dismissed_and_the_others_stay() -> None:
    crew = Crew()
    with ExitStack() as stack:
        members = [stack.enter_context(crew.membership()) for _ in range(3)]
        assert crew.shrink()
        assert [member.dismissed() for member in members] == [True, False, False]
        assert [member.dismissed() for member in members] == [True, False, False]


def test_the_last_one_stays_and_is_told_that_there_is_but_one() -> None:
    crew = Crew()
    with crew.membership() as only:
        assert not crew.shrink()
        assert not only.dismissed()
        crew.wait_for_room()


def waiting(crew: Crew) -> tuple[threading.Thread, threading.Event]:
    went_on = threading.Event()

    def wait() -> None:
        crew.wait_for_room()
        went_on.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, went_on


def test_a_member_without_a_process_goes_on_when_another_has_left() -> None:
    crew = Crew()
    with crew.membership():
        with crew.membership() as other:
            assert crew.shrink()
            thread, went_on = waiting(crew)
            assert other.dismissed()
            assert not went_on.is_set()
        thread.join(LONG)
        assert went_on.is_set()


def test_two_that_wait_do_not_wait_for_each_other() -> None:
    crew, both_in = Crew(), threading.Barrier(2)
    order: list[str] = []

    def member(name: str) -> None:
        with crew.membership():
            both_in.wait(LONG)
            crew.shrink()
            crew.wait_for_room()  # whoever waits has no process, so that one of the two may go on at once
            order.append(name)

    threads = [threading.Thread(target=member, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(order) == ["a", "b"]


def test_a_wait_is_not_for_ever_since_others_may_need_the_work(monkeypatch) -> None:
    monkeypatch.setattr("headrace.engine.processes.crew.LONGEST_WAIT_SECS", 0.01)
    crew = Crew()
    with crew.membership(), crew.membership():
        crew.shrink()
        crew.wait_for_room()


def test_a_stop_ends_the_wait() -> None:
    crew = Crew()
    with crew.membership(), crew.membership():
        crew.shrink()
        crew.cancel()
        with pytest.raises(Cancelled):
            crew.wait_for_room()
