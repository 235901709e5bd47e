"""Hosts under threads: who is in use is never unloaded, the budget holds, everybody gets a turn."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.engine.channel import Cancelled
from headrace.engine.hosts import Hosts
from headrace.errors import ModelLoadError, ModelTooLargeError, StageError, UnknownKeyError
from headrace.model.manager import ModelManager
from headrace.records.block import Block

SIZES = {"a": 30, "b": 30, "c": 60, "d": 90}


class Room:
    """Counts the bytes that models take."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = self.most = self.loads = 0


class Model:
    """A task that takes room while it is open, and notices when it is closed at work."""

    def __init__(self, name: str, room: Room, *, fails: bool = False, hangs: bool = False) -> None:
        self.name, self.room, self.fails, self.hangs = name, room, fails, hangs
        self.open_now = False
        self.killed = threading.Event()

    def open(self) -> None:
        if self.hangs:
            self.killed.wait(60)
            raise Cancelled
        if self.fails:
            raise ModelLoadError(f"{self.name} is broken")
        with self.room.lock:
            self.room.loads += 1
            self.room.bytes += SIZES[self.name]
            self.room.most = max(self.room.most, self.room.bytes)
        self.open_now = True

    def process(self, block: Block) -> Iterator[Block]:
        assert self.open_now
        yield block
        assert self.open_now, "closed at work"

    def counts(self) -> dict[str, Any]:
        return {}

    def statistics(self) -> None:
        return None

    def kill(self) -> None:
        self.killed.set()

    def close(self) -> None:
        if self.open_now:
            self.open_now = False
            with self.room.lock:
                self.room.bytes -= SIZES[self.name]


def hosts_of(room: Room, budget: int | None = 100, broken: str = "") -> Hosts:
    return Hosts(ModelManager(budget, sizes=SIZES), lambda name: Model(name, room, fails=name in broken))


def use(hosts: Hosts, name: str, between: Callable[[], None] = lambda: None) -> None:
    with hosts.lease(name) as task:
        work = task.process(None)  # type: ignore[arg-type]
        next(work)
        between()
        assert next(work, None) is None


def test_one_that_leaves_badly_is_told_of_and_keeps_nobody_from_memory(caplog: pytest.LogCaptureFixture) -> None:
    class Clinging(Model):
        def close(self) -> None:
            super().close()
            raise StageError("unload failed")

    room = Room()
    hosts = Hosts(ModelManager(100, sizes=SIZES), lambda name: Clinging(name, room))
    for name in "dcab":
        use(hosts, name)
    hosts.close()
    assert (room.bytes, room.loads) == (0, 4)
    assert caplog.text.count("did not leave well") == 4


def test_many_threads_with_room_for_some() -> None:
    room = Room()
    hosts = hosts_of(room)

    def some(seed: int) -> None:
        luck = random.Random(seed)
        for _ in range(40):
            use(hosts, luck.choice("abcd"))
            hosts.want([luck.choice("abcd")])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(some, range(6)))
    assert room.most <= 100
    statistics = hosts.statistics()
    assert statistics.hits + statistics.loads >= 240
    assert statistics.peak_bytes <= 100
    assert statistics.swaps == statistics.loads - statistics.copies
    hosts.close()
    assert room.bytes == 0


def test_without_a_budget_all_stay() -> None:
    room = Room()
    hosts = hosts_of(room, budget=None)
    for name in "abcdabcd":
        use(hosts, name)
    assert (room.loads, hosts.statistics().copies, hosts.statistics().budget_bytes) == (4, 4, None)


def test_one_that_waits_for_room_gets_it_when_the_other_is_done() -> None:
    room = Room()
    hosts = hosts_of(room)
    other = threading.Thread(target=use, args=(hosts, "d"))
    use(hosts, "c", between=other.start)
    other.join(10)
    assert not other.is_alive()
    assert hosts.is_ready("d")
    assert not hosts.is_ready("c")


def test_models_that_cannot_be_used_say_why_and_put_nobody_out() -> None:
    room = Room()
    hosts = hosts_of(room, budget=80, broken="b")
    use(hosts, "c")
    hosts.refuse("x", UnknownKeyError("there is no model 'x'"))
    for name, error in (("x", UnknownKeyError), ("d", ModelTooLargeError)):
        assert hosts.victims(name) == ()
        assert hosts.has_place(name)
        for _ in range(2):
            with pytest.raises(error), hosts.lease(name):
                pass
    assert hosts.is_ready("c")
    for _ in range(2):  # it is loaded once only
        with pytest.raises(ModelLoadError), hosts.lease("b"):
            pass
    assert hosts.is_ready("b")
    assert hosts.statistics().loads == 2


def test_the_next_model_is_fetched_in_the_background_where_there_is_room() -> None:
    room = Room()
    hosts = hosts_of(room)
    threads: list[threading.Thread] = []

    def spawn(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    with hosts.lease("c"):
        hosts.fetch(["c", "d"], spawn)
        assert not threads, "it would not fit"
        hosts.fetch(["c", "a"], spawn)
        threads[-1].join(10)
        assert hosts.is_ready("a")
        hosts.fetch(["c", "a", "b"], spawn)
        assert len(threads) == 1, "both that are there are wanted"
    hosts.fetch(["b"], spawn)
    threads[-1].join(10)
    assert hosts.is_ready("b")
    hosts.close()
    assert room.bytes == 0


def test_a_model_that_is_still_being_fetched_at_the_end_is_given_up() -> None:
    room = Room()
    hosts = Hosts(ModelManager(100, sizes=SIZES), lambda name: Model(name, room, hangs=name == "b"))
    use(hosts, "a")

    def load(work: Callable[[], None]) -> None:
        with contextlib.suppress(Cancelled):
            work()

    threads: list[threading.Thread] = []

    def spawn(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=load, args=(work,)))
        threads[-1].start()

    hosts.fetch(["b"], spawn)
    hosts.close()
    assert hosts.statistics().copies == 1, "the one that was there; it is closed"
    assert room.bytes == 0
    threads[-1].join(10)
    assert not threads[-1].is_alive()


def test_who_waits_when_the_run_stops_is_cancelled() -> None:
    hosts = hosts_of(Room())
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            use(hosts, "d")
        except Cancelled as error:
            ended.append(error)

    other = threading.Thread(target=wait)
    with hosts.lease("c"):
        other.start()
        hosts.stop()
        other.join(10)
    assert len(ended) == 1
