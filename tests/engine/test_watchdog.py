"""The watchdog: it names who makes no progress, leaves alone who does, and ends only what cannot be ended otherwise."""

import logging
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.watchdog import Glance, Stalls
from headrace.errors import StageError

LONG = 60.0


def glance(token, *, busy=True, stage="map", replica=0) -> Glance:
    return Glance(stage=stage, replica=replica, busy=busy, token=token, doing=lambda: f"is at {token}")


@settings(deadline=None)
@given(looks=st.lists(st.tuples(st.booleans(), st.floats(0, 200)), min_size=1))
def test_a_busy_replica_is_named_when_nothing_has_changed_for_so_long(looks) -> None:
    stalls, now, token, since = Stalls(300.0), 0.0, 0, None
    for moved, later in looks:
        now += later
        token += moved
        if since is None or moved:
            since = now
        stalls.look([glance(token)], now)
        is_open = bool(stalls.found) and not stalls.found[-1].over
        assert is_open is (now - since >= 300.0)


def test_a_stall_is_told_once_grows_and_is_over_when_there_is_progress() -> None:
    stalls = Stalls(10.0)
    assert stalls.look([glance("a")], 5.0) == []
    (new,) = stalls.look([glance("a")], 15.0)
    assert (new.stage, new.replica, new.doing, new.began_secs, new.secs) == ("map", 0, "is at a", 5.0, 10.0)
    assert stalls.look([glance("a")], 25.0) == []
    assert stalls.found[0].secs == 20.0
    assert stalls.look([glance("b")], 26.0) == []
    assert (stalls.found[0].over, stalls.found[0].secs) == (True, 20.0)
    stalls.look([glance("b")], 40.0)
    assert [stall.over for stall in stalls.found] == [True, False]


def test_one_replica_of_several_is_named() -> None:
    stalls = Stalls(10.0)
    for now in range(12):
        stalls.look([glance("stuck", replica=0), glance(now, replica=1)], float(now))
    assert [stall.replica for stall in stalls.found] == [0]


def test_who_waits_for_others_is_not_stalled_while_any_of_them_works() -> None:
    stalls = Stalls(10.0)
    for now in range(30):
        stalls.look([glance("waits", busy=False, stage="write"), glance(now, stage="map")], float(now))
    assert stalls.found == []


def test_where_nobody_works_all_are_named_with_what_they_wait_for() -> None:
    stalls = Stalls(10.0)
    for now in range(12):
        stalls.look([glance("room", busy=False, stage="read"), glance("rows", busy=False, stage="map")], float(now))
    (stall,) = stalls.found
    assert stall.doing == "read is at room; map is at rows"


def test_a_caller_who_pulls_the_rows_may_take_his_time() -> None:
    stalls = Stalls(10.0, everybody=False)
    for now in range(30):
        stalls.look([glance("room", busy=False, stage="read")], float(now))
    assert stalls.found == []


class Warned(logging.Handler):
    """Does something when the watchdog speaks up."""

    def __init__(self, then) -> None:
        super().__init__()
        self.then = then
        self.messages: list[str] = []

    def emit(self, record) -> None:
        if "no progress" in record.getMessage():
            self.messages.append(record.getMessage())
            self.then()


@pytest.fixture
def warned():
    handlers = []

    def listen(then) -> Warned:
        handlers.append(Warned(then))
        logging.getLogger("headrace.engine").addHandler(handlers[-1])
        return handlers[-1]

    yield listen
    for handler in handlers:
        logging.getLogger("headrace.engine").removeHandler(handler)


def test_a_thread_is_named_with_the_line_that_it_is_at_and_the_run_goes_on(tmp_path, warned) -> None:
    seen = threading.Event()
    heard = warned(seen.set)

    def waits_for_the_watchdog(row):
        assert seen.wait(LONG)
        return row

    ds = hr.range(1).map(waits_for_the_watchdog, isolation="thread", name="slow")
    result = ds.write_json(tmp_path / "out").run(stall_warning_secs=0.2)
    assert result.rows_written == 1
    assert heard.messages[0].startswith("stage slow: replica 0 has made no progress for ")
    assert "is at work in " in heard.messages[0]
    (stall,) = [stall for stall in result.statistics.stalls if stall.stage == "slow"]
    assert "slow: replica 0" in str(result.report())
    assert stall.secs >= 0.2


def test_a_worker_process_is_named_with_its_row(tmp_path, warned) -> None:
    mark = tmp_path / "mark"
    heard = warned(mark.touch)

    def waits_for_the_watchdog(row):
        deadline = time.monotonic() + LONG
        while row["id"] == 3 and not mark.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return row

    ds = hr.range(5).map(waits_for_the_watchdog, isolation="process", concurrency=1, name="slow")
    result = ds.write_json(tmp_path / "out").run(stall_warning_secs=2)
    assert result.rows_written == 5
    assert any("in its worker process (pid" in m and "step 'slow', with row 3" in m for m in heard.messages)


def hanging(kind: str, release: threading.Event):
    class Hanging(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model):
            release.wait(LONG)
            return batch

    if kind == "model":
        return hr.range(1).run_inference(Hanging(), isolation="thread", timeout_secs=0.3, version="1")
    if kind == "map_batches":
        return hr.range(1).map_batches(lambda b: release.wait(LONG) and b, isolation="thread", timeout_secs=0.3)
    return hr.range(1).map(lambda row: release.wait(LONG) and row, isolation="thread", timeout_secs=0.3)


@pytest.mark.parametrize("kind", ["model", "map_batches", "map"])
def test_a_thread_that_outlives_its_time_ends_the_run_since_it_cannot_be_killed(kind, monkeypatch) -> None:
    monkeypatch.setattr("headrace.engine.state.JOIN_SECS", 0.1)
    release = threading.Event()
    try:
        with pytest.raises(
            StageError, match=r"timeout_secs=0.3, and a thread cannot be killed; pass isolation='process'"
        ):
            hanging(kind, release).take(1)
    finally:
        release.set()
