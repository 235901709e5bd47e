import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import psutil
import pyarrow as pa
import pytest

from headrace.engine.processes.pool import LARGEST_BYTES, PLACES
from headrace.engine.processes.replica import ProcessReplica
from headrace.errors import PlanError, RunError, StageError, UnknownColumnError, WorkerCrashedError
from headrace.records.tensors import TensorType, tensor_array
from tests.engine.processes import tasks

LINUX = sys.platform == "linux"


@contextlib.contextmanager
def opened(task, name="map_1", **options):
    replica = ProcessReplica(task, name=name, **options)
    try:
        replica.open()
        yield replica
    finally:
        replica.close()


def wait_until(condition, secs=20.0):
    """Poll for what happens in another process; fails when it does not happen at all."""
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def open_fds():
    return psutil.Process().num_fds()


def test_a_block_comes_back_as_it_was():
    with opened(tasks.Echo()) as replica:
        block = tasks.block_of(1_000, first=40)
        (back,) = replica.process(block)
        assert back.batch.equals(block.batch)
        assert (back.unit, back.start, back.end, back.ordinals) == (block.unit, block.start, block.end, None)
        assert replica.statistics() == {"pid": replica.pid}
        assert replica.pid != os.getpid()


@pytest.mark.parametrize("rows", [0, 1, 5, 100_000])
def test_blocks_of_any_size_travel(rows):
    with opened(tasks.Echo()) as replica:
        block = tasks.block_of(rows)
        for _ in range(3):
            assert [b.batch.num_rows for b in replica.process(block)] == [rows]


def test_pieces_come_one_by_one_and_the_worker_stays_two_ahead(tmp_path):
    mark = tmp_path / "pieces"
    with opened(tasks.Marking(mark)) as replica:
        pieces = replica.process(tasks.block_of(50))
        first = next(pieces)
        assert (first.start, first.end) == ((0,), (1,))
        # The worker makes piece k+2 before it waits for the consumer of piece k: it may be working on the third now,
        # and never gets to the fourth.
        wait_until(lambda: mark.read_text().count("\n") == 3)
        assert [p.start[0] for p in pieces] == list(range(1, 50))
        assert mark.read_text().split() == [str(i) for i in range(50)]


def test_counts_follow_the_pieces():
    with opened(tasks.Echo(piece_rows=10)) as replica:
        assert replica.counts()["echo"].rows_in == 0
        pieces = replica.process(tasks.block_of(30))
        next(pieces)
        assert replica.counts()["echo"].rows_in == 10
        list(pieces)
        assert replica.counts()["echo"].rows_in == 30


def test_a_tensor_column_keeps_its_type():
    column = tensor_array([np.ones((2, 3), "uint8"), None])
    block = tasks.block_of(2)
    with opened(tasks.Echo()) as replica:
        (back,) = replica.process(block.with_batch(pa.record_batch({"image": column})))
    assert isinstance(back.batch.schema.field("image").type, TensorType)
    assert back.batch.column("image").equals(column)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_received_memory_is_mapped_not_copied_and_freed_with_the_last_view():
    def mappings():
        with open("/proc/self/maps") as maps:
            return sum("memfd:headrace-block" in line for line in maps)

    with opened(tasks.Echo()) as replica:
        fds, arrow_bytes = open_fds(), pa.total_allocated_bytes()
        (back,) = replica.process(tasks.wide_block(LARGEST_BYTES + (1 << 20)))
        assert mappings() == 1
        assert pa.total_allocated_bytes() - arrow_bytes < 1 << 20
        assert open_fds() == fds  # a mapping needs no descriptor
        view = back.batch.column("x").slice(1_000, 10).to_numpy()
        del back
        gc.collect()
        assert view.tolist() == list(range(1_000, 1_010))
        assert mappings() == 1
        del view
        gc.collect()
        assert mappings() == 0


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_memory_is_used_again_and_no_block_is_changed_by_later_ones():
    def buffers():
        with open("/proc/self/maps") as maps:
            return {line.split()[4] for line in maps if "memfd:headrace-pool" in line}

    with opened(tasks.Echo()) as replica:
        held = []
        for first in range(8):
            (back,) = replica.process(tasks.block_of(200_000, first=first))
            if first % 3 == 0:
                held.append(back)
            if first == 5:
                seen = buffers()
        assert buffers() == seen
        assert len(seen) <= 2 * PLACES
        for number, back in enumerate(held):
            assert back.batch.equals(tasks.block_of(200_000, first=3 * number).batch)


@pytest.mark.parametrize("task", [tasks.Echo(), tasks.Raising(), tasks.Dying(signal.SIGKILL), tasks.FailsToOpen()])
def test_nothing_is_left_behind(task):
    with opened(tasks.Echo()):
        pass  # what is set up once stays: the thread that starts workers
    fds = open_fds()
    replica = ProcessReplica(task, name="map_1")
    with contextlib.suppress(RunError):
        replica.open()
        list(replica.process(tasks.wide_block(1 << 20)))
    pid = replica.pid
    replica.close()
    replica.close()
    gc.collect()
    assert not psutil.pid_exists(pid)  # nor a zombie
    assert open_fds() == fds


def test_close_runs_the_tasks_close(tmp_path):
    with opened(tasks.Leaving(tmp_path / "mark")) as replica:
        list(replica.process(tasks.block_of(3)))
    assert (tmp_path / "mark").read_text() == "closed"


def test_close_runs_the_tasks_close_in_the_middle_of_a_block(tmp_path):
    with opened(tasks.Leaving(tmp_path / "mark", piece_rows=1)) as replica:
        pieces = replica.process(tasks.block_of(50))
        next(pieces)
    assert (tmp_path / "mark").read_text() == "closed"


def test_close_of_a_replica_that_was_never_opened_does_nothing():
    ProcessReplica(tasks.Echo(), name="map_1").close()


def test_close_kills_a_worker_that_does_not_end():
    replica = ProcessReplica(tasks.EndlessToClose(), name="map_1")
    replica.open()
    replica.close(grace_secs=0.1)
    assert not psutil.pid_exists(replica.pid)


def test_an_error_of_close_is_raised():
    replica = ProcessReplica(tasks.FailsToClose(), name="map_1")
    replica.open()
    with pytest.raises(StageError, match=r"close\(\) of Lang failed"):
        replica.close()
    assert not psutil.pid_exists(replica.pid)


def test_a_headrace_error_arrives_as_itself():
    with opened(tasks.Raising()) as replica, pytest.raises(StageError) as raised:
        list(replica.process(tasks.block_of(3)))
    assert str(raised.value) == "stage 'map_1', row 7 of in.csv: too long"
    assert "tasks.py" in str(raised.value.__cause__)


def test_an_error_whose_constructor_takes_other_arguments_arrives_as_itself():
    with opened(tasks.UnknownColumn()) as replica, pytest.raises(UnknownColumnError, match="did you mean 'text'"):
        list(replica.process(tasks.block_of(3)))


def test_after_an_error_every_block_is_answered_with_it():
    with opened(tasks.Raising()) as replica:
        for _ in range(3):
            with pytest.raises(StageError, match="row 7"):
                list(replica.process(tasks.block_of(3)))


def test_a_kill_before_the_start_holds():
    replica = ProcessReplica(tasks.Echo(), name="map_1")
    replica.kill()
    with pytest.raises(WorkerCrashedError, match="was stopped"):
        replica.open()
    replica.close()
    assert not psutil.pid_exists(replica.pid)


def test_an_error_at_open_arrives_as_itself():
    with pytest.raises(StageError, match="no such language"), opened(tasks.FailsToOpen()):
        pass


@pytest.mark.parametrize(
    ("task", "what"), [(tasks.Buggy(), "ZeroDivisionError: inside"), (tasks.Exiting(), "SystemExit: 3")]
)
def test_any_other_error_is_a_run_error_with_the_remote_traceback(task, what):
    with opened(task) as replica, pytest.raises(RunError) as raised:
        list(replica.process(tasks.block_of(3)))
    assert "stage 'map_1'" in str(raised.value)
    assert what in str(raised.value)
    assert "tasks.py" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("task", "how"),
    [
        (tasks.Dying(signal.SIGKILL), "signal 9.*no kill for want of memory"),
        (tasks.Dying(signal.SIGTERM), "SIGTERM"),
        (tasks.ExitingHard(), "exited with status 7"),
    ],
)
def test_a_dying_worker_is_one_clear_error(task, how):
    with opened(task, name="lang") as replica, pytest.raises(WorkerCrashedError, match=how) as raised:
        list(replica.process(tasks.block_of(3)))
    assert "stage 'lang'" in str(raised.value)


def test_a_segfault_names_the_line():
    with opened(tasks.Segfaulting()) as replica, pytest.raises(WorkerCrashedError) as raised:
        list(replica.process(tasks.block_of(3)))
    assert "SIGSEGV" in str(raised.value)
    assert "read_nowhere" in str(raised.value)


def test_a_death_is_noticed_and_the_users_children_end_although_one_holds_the_socket(tmp_path):
    with opened(tasks.DyingWithHeir(tmp_path / "mark")) as replica, pytest.raises(WorkerCrashedError, match="SIGKILL"):
        list(replica.process(tasks.block_of(3)))
    wait_until(lambda: is_gone(int((tmp_path / "mark").read_text())))


def test_forks_in_the_users_code_do_not_write_into_frames(caplog):
    with opened(tasks.ForkingAndTalking()) as replica:
        assert len(list(replica.process(tasks.block_of(3)))) == 5
    assert [r.getMessage() for r in caplog.records] == ["from the worker"] * 5


def test_what_the_system_refuses_is_one_clear_error(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    fds = open_fds()
    replica = ProcessReplica(tasks.Echo(), name="map_1")
    with pytest.raises(RunError, match="stage 'map_1'.*temporarily unavailable.*concurrency"):
        replica.open()
    replica.close()
    gc.collect()
    assert open_fds() == fds


def test_kill_from_another_thread_ends_the_wait_and_the_users_children(tmp_path):
    with opened(tasks.Sleeping(tmp_path / "mark", with_child=True)) as replica:
        raised = []

        def consume():
            try:
                list(replica.process(tasks.block_of(3)))
            except WorkerCrashedError as error:
                raised.append(str(error))

        consumer = threading.Thread(target=consume)
        consumer.start()
        wait_until((tmp_path / "mark").exists)
        worker, child = map(int, (tmp_path / "mark").read_text().split())
        replica.kill()
        consumer.join()
        assert raised == ["stage 'map_1': its worker process was stopped"]
        assert not psutil.pid_exists(worker)
        wait_until(lambda: is_gone(child))


def test_what_cannot_be_pickled_is_a_plan_error_that_names_it():
    task = tasks.Echo()
    task.guard = threading.Lock()
    with pytest.raises(PlanError, match=r"attribute guard of Echo of stage 'map_1' is a _thread\.lock"), opened(task):
        pass


def test_functions_of_main_travel_by_value(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from headrace.engine.processes.replica import ProcessReplica
            from headrace.records.columns import from_column, from_rows
            from tests.engine.processes.tasks import Echo, block_of

            FACTOR = 3

            class Answer:
                def __init__(self, n): self.n = n

            class Mine(Echo):
                def process(self, block):
                    yield block.with_batch(from_rows([{"answer": Answer(FACTOR * block.num_rows)}]))

            replica = ProcessReplica(Mine(), name="mine")
            replica.open()
            (piece,) = replica.process(block_of(1))
            (answer,) = from_column(piece.batch.column("answer"))
            print(type(answer) is Answer, answer.n)
            replica.close()
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=_env(), check=False)
    assert (done.stdout, done.stderr) == ("True 3\n", "")


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_workers_surroundings(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with opened(tasks.Describing()) as replica, opened(tasks.Describing(), env={"OMP_NUM_THREADS": "2"}) as second:
        (facts,) = next(replica.process(tasks.block_of(1))).batch.to_pylist()
        (more,) = next(second.process(tasks.block_of(1))).batch.to_pylist()
    assert facts["path"] == sys.path
    assert facts["argv"] == sys.argv
    assert facts["pythonpath"] == "/nowhere"
    assert (facts["omp"], more["omp"]) == ("1", "2")
    assert facts["stdin"] == ""
    assert facts["ignores_sigint"]
    assert sum("socket:" in target for target in more["fds"]) == 1  # its own end, not that of its neighbour


@pytest.mark.skipif(not LINUX, reason="the thread that starts a process counts as its parent on Linux only")
def test_a_worker_outlives_the_thread_that_opened_it():
    replica = ProcessReplica(tasks.Echo(), name="map_1")
    opener = threading.Thread(target=replica.open)
    opener.start()
    opener.join()
    try:
        assert len(list(replica.process(tasks.block_of(3)))) == 1
    finally:
        replica.close()


def test_logging_and_warnings_come_to_the_parents_loggers(caplog, capfd):
    with caplog.at_level(logging.INFO), opened(tasks.Talking(), name="talk") as replica:
        list(replica.process(tasks.block_of(1, first=4)))
    records = {r.getMessage().split("\n")[0]: r for r in caplog.records}
    odd = records["row 4 is odd"]
    assert (odd.name, odd.levelname, odd.processName) == ("mine.lang", "WARNING", "talk")
    assert "ValueError: inner" in records["it happened"].exc_text
    assert "not looked at" not in records
    (warned,) = [r for r in caplog.records if r.name == "py.warnings"]
    assert "FutureWarning: old column" in warned.getMessage()
    out, err = capfd.readouterr()
    assert (out, "to stderr\n" in err) == ("to stdout\n", True)


def test_too_many_like_records_are_counted(caplog):
    with opened(tasks.Chattering()) as replica:
        list(replica.process(tasks.block_of(1)))
    messages = [r.getMessage() for r in caplog.records]
    shown = [m for m in messages if "more like it" not in m]
    counted = sum(int(m.split(" and ")[1].split()[0].replace(",", "")) for m in messages if "more like it" in m)
    assert shown[:2] == ["spam 0", "spam 1"]
    assert len(shown) < 200
    assert len(shown) + counted == 500


PARENT = """
    import sys, threading, pathlib
    from headrace.engine.processes.replica import ProcessReplica
    from tests.engine.processes import tasks
    from tests.engine.processes.tasks import block_of

    replica = ProcessReplica(getattr(tasks, sys.argv[2])(pathlib.Path(sys.argv[1])), name="map_1")
    replica.open()
    try:
        list(replica.process(block_of(3)))
    except KeyboardInterrupt:
        replica.kill()
        replica.close()
        print("interrupted")
"""


def _env():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@contextlib.contextmanager
def a_parent_in_mid_sleep(tmp_path, task="Sleeping"):
    command = [sys.executable, "-c", textwrap.dedent(PARENT), tmp_path / "mark", task]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=_env(), stdout=pipe, stderr=pipe, text=True, start_new_session=True) as parent:
        try:
            wait_until((tmp_path / "mark").exists)
            yield parent, int((tmp_path / "mark").read_text())
        finally:
            parent.kill()


def test_a_worker_ends_with_a_killed_parent_even_in_mid_sleep(tmp_path):
    with a_parent_in_mid_sleep(tmp_path) as (parent, worker):
        parent.kill()
        parent.wait()
        wait_until(lambda: is_gone(worker), secs=5)


@pytest.mark.skipif(not LINUX, reason="only Linux ends a process with its parent; elsewhere a thread must get to run")
def test_a_worker_ends_with_a_killed_parent_even_in_native_code(tmp_path):
    with a_parent_in_mid_sleep(tmp_path, task="HoldingTheLock") as (parent, worker):
        parent.kill()
        parent.wait()
        wait_until(lambda: is_gone(worker), secs=5)


def test_ctrl_c_reaches_the_parent_alone(tmp_path):
    with a_parent_in_mid_sleep(tmp_path) as (parent, worker):
        os.killpg(parent.pid, signal.SIGINT)
        out, err = parent.communicate(timeout=20)
        assert (out, err, parent.returncode) == ("interrupted\n", "", 0)
        assert is_gone(worker)
