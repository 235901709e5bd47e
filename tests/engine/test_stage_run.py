"""Replicas of a stage: numbered apart, and the outlet is closed once, by the last, only if all went well."""

import threading
from types import SimpleNamespace

from headrace.engine.outlet import Outlet
from headrace.engine.stage_run import StageRun
from headrace.engine.state import RunState

LONG = 10.0


class Closings(Outlet):
    def __init__(self) -> None:
        super().__init__([])
        self.count = 0

    def close(self) -> None:
        self.count += 1


class Work(StageRun):
    def __init__(self, work, replicas: int) -> None:
        plan = SimpleNamespace(name="stage", replicas=replicas, isolation="thread", steps=())
        super().__init__(plan, RunState(), Closings(), None)
        self._work = work

    def work(self, number, clock) -> None:
        self._work(number)

    def run(self) -> None:
        self.start()
        self.state.all_started()
        assert self.state.wait(LONG)


def test_the_last_replica_closes_the_outlet() -> None:
    stage = Work(lambda number: None, replicas=3)
    stage.run()
    assert stage.outlet.count == 1


def test_an_outlet_is_not_closed_when_a_replica_failed() -> None:
    failed = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("no")
        failed.wait(LONG)

    stage = Work(work, replicas=2)
    stage.state.on_stop(failed.set)
    stage.run()
    assert stage.outlet.count == 0
    assert isinstance(stage.state.error, ValueError)


def test_replicas_that_join_later_have_numbers_of_their_own() -> None:
    numbers: list[int] = []
    started = threading.Event()

    def work(number: int) -> None:
        numbers.append(number)
        if number == 0:
            stage.add_replica()
            stage.add_replica()
            started.set()
        started.wait(LONG)

    stage = Work(work, replicas=1)
    stage.run()
    assert sorted(numbers) == [0, 1, 2]
    assert stage.outlet.count == 1
