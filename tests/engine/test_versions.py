from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from headrace.engine.channel import Cancelled
from headrace.engine.versions import Generation, Versions
from headrace.errors import ModelLoadError
from headrace.model.versions import Version
from headrace.testing import FakeModelHandler


def generation(name: str, copies: int = 1) -> Generation:
    return Generation(Version(FakeModelHandler(len), name), [object() for _ in range(copies)])  # type: ignore[list-item]


def test_a_batch_keeps_the_version_that_it_began_with() -> None:
    versions, old, new = Versions(), generation("old"), generation("new")
    assert versions.use(old) == 0
    with versions.lease(0, 10) as task:
        assert versions.use(new) == 10
        with versions.lease(0, 5) as other:
            assert (task, other) == (old.tasks[0], new.tasks[0])
        assert old.users == 1
    versions.wait_until_idle(old)
    assert versions.rows == 15


def test_replicas_have_copies_of_their_own() -> None:
    versions, both = Versions(), generation("two", copies=2)
    versions.use(both)
    with versions.lease(0, 1) as first, versions.lease(1, 1) as second:
        assert [first, second] == both.tasks


def test_a_batch_goes_to_the_copy_that_has_least_to_do_and_waits_for_its_turn() -> None:
    made = Version(FakeModelHandler(len), "two")
    versions, both = Versions(), Generation(made, [object(), object()], exclusive=True)  # type: ignore[list-item]
    versions.use(both)
    seen: list[object] = []

    def ask() -> None:
        with suppress(Cancelled), versions.lease(1, 1) as task:
            seen.append(task)

    with versions.lease(0, 1) as first, versions.lease(0, 1) as second:
        assert [first, second] == both.tasks  # though both are of the first replica
        waiting = threading.Thread(target=ask)
        waiting.start()
        while both.users < 3:
            pass
        assert seen == []
        versions.stop()
    waiting.join()
    assert (seen, both.users) == ([], 0)


def test_to_drain_is_to_wait_for_batches_and_to_let_none_begin() -> None:
    versions, old, new = Versions(), generation("old"), generation("new")
    versions.use(old)
    drained, seen = threading.Event(), []

    def drain() -> None:
        seen.append(versions.drain())
        drained.set()

    def ask() -> None:
        with versions.lease(0, 1) as task:
            seen.append(task)

    lease = versions.lease(0, 1)
    lease.__enter__()
    threads = [threading.Thread(target=drain)]
    threads[0].start()
    while versions.generation is not None:
        pass
    threads.append(threading.Thread(target=ask))
    threads[1].start()
    assert not drained.is_set()
    assert seen == []
    lease.__exit__(None, None, None)
    assert drained.wait(10)
    assert seen == [old]
    versions.use(new)
    for thread in threads:
        thread.join(10)
    assert seen == [old, new.tasks[0]]


def test_who_waits_is_woken_when_the_run_stops_or_nothing_can_be_used() -> None:
    versions = Versions()
    versions.fail(ModelLoadError("gone"))
    with pytest.raises(ModelLoadError, match="gone"), versions.lease(0, 1):
        pass
    versions = Versions()
    versions.stop()
    with pytest.raises(Cancelled), versions.lease(0, 1):
        pass
    with pytest.raises(Cancelled):
        versions.use(generation("late"))
