from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.engine.copies import Copies
from headrace.errors import ModelLoadError, StageError
from headrace.testing import ManualClock


class Model:
    """A task that notices when it is used by two at once, or while it is closed."""

    def __init__(self, number: int, log: list[str]) -> None:
        self.number, self.log = number, log
        self.free = threading.Lock()
        self.is_open = False

    def open(self) -> None:
        self.log.append(f"load {self.number}")
        self.is_open = True

    def use(self) -> None:
        assert self.free.acquire(blocking=False), "used by two at once"
        assert self.is_open
        self.free.release()

    def statistics(self) -> None:
        return None

    def close(self) -> None:
        self.log.append(f"close {self.number}")
        self.is_open = False


def copies_of(count: int, log: list[str], **settings: Any) -> Copies:
    copies = Copies(lambda number: Model(number, log), count, exclusive=True, **settings)  # type: ignore[arg-type,return-value]
    copies.join()
    return copies


def test_a_copy_is_loaded_when_none_is_idle_and_used_by_one_at_a_time() -> None:
    log: list[str] = []
    copies = copies_of(2, log)
    for _ in range(3):
        with copies.lease() as task:
            task.use()  # type: ignore[attr-defined]
    assert log == ["load 0"]
    with copies.lease() as one, copies.lease() as other:
        assert one is not other
    assert log == ["load 0", "load 1"]

    def use(_: int) -> None:
        with copies.lease() as task:
            task.use()  # type: ignore[attr-defined]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(500)))
    copies.leave()
    assert sorted(log) == ["close 0", "close 1", "load 0", "load 1"]


def test_copies_stay_until_the_last_stage_has_left() -> None:
    log: list[str] = []
    copies = copies_of(1, log)
    assert not copies.join()
    with copies.lease():
        pass
    copies.leave()
    assert log == ["load 0"]
    copies.leave()
    assert log == ["load 0", "close 0"]


def test_a_copy_that_nobody_has_used_for_long_leaves_and_comes_back() -> None:
    log: list[str] = []
    clock = ManualClock()
    copies = copies_of(2, log, idle_secs=10.0, clock=clock)
    with copies.lease(), copies.lease():
        clock.advance(60)
        copies.put_out_idle()  # both are in use
    with copies.lease():
        clock.advance(9)
        with copies.lease():
            pass
    clock.advance(9.5)
    copies.put_out_idle()
    assert log == ["load 0", "load 1"]
    clock.advance(1)
    copies.put_out_idle()
    assert sorted(log[2:]) == ["close 0", "close 1"]
    assert copies.tasks() == []
    with copies.lease() as task:
        task.use()  # type: ignore[attr-defined]
    assert log[4:] == ["load 0"]
    copies.leave()


def test_what_cannot_be_loaded_is_closed_and_tried_again_by_the_next() -> None:
    log: list[str] = []

    class Broken(Model):
        def open(self) -> None:
            super().open()
            raise ModelLoadError("no file")

    copies = Copies(lambda number: Broken(number, log), 1, exclusive=False)  # type: ignore[arg-type,return-value]
    copies.join()
    for _ in range(2):
        with pytest.raises(ModelLoadError), copies.lease():
            pass
    copies.leave()
    assert log == ["load 0", "close 0"] * 2


def test_an_idle_copy_that_leaves_badly_is_told_of_and_another_takes_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log: list[str] = []
    clock = ManualClock()

    class Clinging(Model):
        def close(self) -> None:
            super().close()
            if len(log) == 2:
                raise StageError("unload failed")

    copies = Copies(lambda number: Clinging(number, log), 1, exclusive=True, idle_secs=1.0, clock=clock)  # type: ignore[arg-type,return-value]
    copies.join()
    with copies.lease():
        pass
    clock.advance(2)
    copies.put_out_idle()
    assert "did not leave in good order: unload failed" in caplog.text
    with copies.lease():
        pass
    copies.leave()
    assert log == ["load 0", "close 0", "load 0", "close 0"]


def test_all_copies_leave_also_where_one_leaves_badly() -> None:
    log: list[str] = []

    class Clinging(Model):
        def close(self) -> None:
            super().close()
            if self.number == 1:
                raise StageError("unload failed")

    copies = Copies(lambda number: Clinging(number, log), 2, exclusive=True)  # type: ignore[arg-type,return-value]
    copies.join()
    with copies.lease(), copies.lease():
        pass
    with pytest.raises(StageError, match="unload failed"):
        copies.leave()
    assert sorted(log[2:]) == ["close 0", "close 1"]
