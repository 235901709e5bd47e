"""One object a process and key: made once, kept while a run goes on, closed at its end."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.model.shared import SharedObjects


class Thing:
    def __init__(self, closed=None):
        self.closed = closed

    def close(self):
        self.closed.append(self)


def test_threads_that_ask_at_once_get_one_object():
    objects, made = SharedObjects(), []
    together = threading.Barrier(8)

    def factory():
        made.append(1)
        return Thing()

    def ask(_):
        together.wait(30)
        return objects.get(factory, key="thing")

    with objects.run(), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert made == [1]
    assert len({id(one) for one in found}) == 1
    assert (objects.statistics().made, objects.statistics().found) == (1, 7)


def test_while_one_is_being_made_others_are_had():
    objects = SharedObjects()

    def slow():
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(objects.get, lambda: "other", key="other").result(30) == "other"
        return "slow"

    assert objects.get(slow, key="slow") == "slow"


def test_what_a_run_made_is_closed_at_its_end_the_last_first_and_then_made_anew():
    objects, closed = SharedObjects(), []
    with objects.run():
        first = objects.get(lambda: Thing(closed), key=1)
        second = objects.get(lambda: Thing(closed), key=2)
        with objects.run():
            assert objects.get(lambda: Thing(closed), key=1) is first
        assert closed == []
        assert objects.statistics().held == 2
    assert closed == [second, first]
    assert objects.statistics().held == 0
    with objects.run():
        assert objects.get(lambda: Thing(closed), key=1) is not first


def test_what_the_caller_had_before_the_run_is_used_and_stays_open():
    objects, closed = SharedObjects(), []
    mine = objects.get(lambda: Thing(closed), key="mine")
    with objects.run():
        assert objects.get(lambda: Thing(closed), key="mine") is mine
    assert closed == []
    assert objects.get(lambda: Thing(closed), key="mine") is mine


def test_outside_of_a_run_nothing_is_kept_that_nobody_holds():
    objects, made = SharedObjects(), []

    def factory():
        made.append(1)
        return Thing()

    objects.get(factory, key="thing")
    gc.collect()
    objects.get(factory, key="thing")
    assert len(made) == 2


def test_a_factory_that_fails_is_asked_again():
    objects, answers = SharedObjects(), [OSError("not yet"), "there"]

    def factory():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(OSError, match="not yet"):
        objects.get(factory, key="thing")
    assert objects.get(factory, key="thing") == "there"


def test_an_object_that_cannot_be_closed_keeps_none_of_the_others_open(caplog):
    objects, closed = SharedObjects(), []

    class Broken:
        def close(self):
            raise OSError("stuck")

    with objects.run():
        objects.get(lambda: Thing(closed), key="fine")
        objects.get(Broken, key="broken")
    assert len(closed) == 1
    assert "'broken' could not be closed" in caplog.text


def test_a_key_that_is_none_is_named():
    with pytest.raises(PlanError, match=r"\['a'\].*text will do"):
        hr.shared(dict, key=["a"])


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_steps_of_a_process_share_and_its_end_closes(isolation, tmp_path):
    log = tmp_path / "log"

    class Index:
        def __init__(self):
            with log.open("a") as file:
                file.write(f"made {os.getpid()}\n")

        def close(self):
            with log.open("a") as file:
                file.write(f"closed {os.getpid()}\n")

    def look_up(row):
        return row | {"index": id(hr.shared(Index, key="index")), "pid": os.getpid()}

    rows = hr.range(2000).map(look_up, isolation=isolation, concurrency=2).take(2000)
    pids = {row["pid"] for row in rows}
    assert len({(row["pid"], row["index"]) for row in rows}) == len(pids)
    assert (pids == {os.getpid()}) == (isolation == "thread")
    lines = log.read_text().splitlines()
    assert {line for line in lines if line.startswith("made")} == {f"made {pid}" for pid in pids}
    assert sorted(lines) == sorted([f"made {pid}" for pid in pids] + [f"closed {pid}" for pid in pids])
