"""An execution that is over leaves nothing running, however it ended."""

from __future__ import annotations

import sys
import threading

import pytest

import headrace as hr


def left_early() -> None:
    rows = hr.range(10).iter_rows()
    next(rows)
    rows.close()


def left_when_all_is_read() -> None:
    assert len(hr.range(10).take(3)) == 3


def failing() -> None:
    def refuse(row: dict[str, int]) -> dict[str, int]:
        raise ValueError("no")

    with pytest.raises(hr.errors.StageError):
        hr.range(10).map(refuse).to_arrow()


@pytest.mark.parametrize("run", [left_early, left_when_all_is_read, failing, lambda: hr.range(10).to_arrow()])
def test_no_thread_goes_on_and_the_interpreter_is_as_it_was(run) -> None:
    before, switch_secs = set(threading.enumerate()), sys.getswitchinterval()
    run()
    left = {thread for thread in set(threading.enumerate()) - before if thread.name != "headrace-starter"}
    for thread in left:
        thread.join(10)
    assert [thread.name for thread in left if thread.is_alive()] == []
    assert sys.getswitchinterval() == switch_secs
