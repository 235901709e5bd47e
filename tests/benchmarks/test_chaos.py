"""What chaos would notice; and, among the heavy tests, a little chaos."""

import signal
import sys
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import chaos, chaos_jobs
from benchmarks.calls import CALL
from benchmarks.chaos import AGAIN, LOST, OTHERWISE, UNREADABLE, Life, RandomStrikes, Tally, as_it_should
from benchmarks.chaos_jobs import ChaosJob, Output, faults_of
from benchmarks.killing import Ended, kill_child, run


def ended(code, errors="", killed_at=None):
    return Ended(code=code, errors=errors, killed_at=killed_at, ended_at=1.0, left_behind=0)


def test_how_runs_may_end():
    lost_a_worker = "headrace.errors.WorkerCrashedError: stage 'map_1': its worker process was killed"
    assert as_it_should(ended(0), None)
    assert as_it_should(ended(-signal.SIGKILL, killed_at=0.5), "main")
    assert as_it_should(ended(1, lost_a_worker, killed_at=0.5), "worker")
    assert not as_it_should(ended(1, lost_a_worker), "worker")
    assert not as_it_should(ended(1, lost_a_worker, killed_at=0.5), "main")
    assert not as_it_should(ended(1, "headrace.errors.ResumeError: the journal is damaged", killed_at=0.5), "worker")
    assert not as_it_should(ended(-signal.SIGKILL), None)


def test_rows_that_are_lost_twice_there_or_wrong_are_counted(tmp_path):
    pq.write_table(pa.table({"customer_id": [1, 2, 2, 9], "score": [0.5, 0.25, 0.25, 0.0]}), tmp_path / "a.parquet")
    faults = faults_of(tmp_path, [Output(folder="", answer="score", expected={1: 0.75, 2: 0.25, 3: 0.1})])
    assert (faults.lost, faults.twice, faults.wrong) == (1, 1, 2)


SLEEPER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "


def test_what_a_program_leaves_behind_is_counted_and_ended(monkeypatch):
    monkeypatch.setattr("benchmarks.killing.GONE_SECS", 0.2)
    assert run([sys.executable, "-c", SLEEPER]).left_behind == 1
    assert run([sys.executable, "-c", "pass"]).left_behind == 0


def test_there_is_no_child_to_kill_in_a_program_without_any():
    assert run([sys.executable, "-c", "pass"], lambda process: kill_child(process, Random(0))).killed_at is None


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(chaos_jobs, "DATA", tmp_path)
    monkeypatch.setattr(chaos, "LONGEST_WAIT_SECS", 0.5)
    return tmp_path


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "child"), [("csv-model", "host"), ("json-rows", "worker"), ("two-sinks", "child"), ("paid-rows", "host")]
)
def test_a_little_chaos(name, child, data):
    job = ChaosJob(name=name, rows=480, secs_a_row=0.004, child=child)
    job.write_input()
    tally = Tally()
    strikes = RandomStrikes(job, Random(name), kills=2)
    Life(job, tally, data / "life").through(strikes)
    assert strikes.hits >= 1
    assert not +tally.faults


def test_chaos_is_noticed(data):
    """An output that loses rows after the end, and work that is done again for no reason."""
    job = ChaosJob(name="json-rows", rows=80, secs_a_row=0.0, child="worker")
    job.write_input()
    tally = Tally()

    def sabotage(life):
        life.go_on()
        (part, *_) = sorted((data / "life" / "out").glob("part-*"))
        part.write_text("".join(part.read_text().splitlines(keepends=True)[3:]))
        for file in (data / "life" / "calls").glob("*.calls"):
            calls = np.fromfile(file, dtype=CALL)[-2:]
            calls["began"] += 100
            calls["ended"] += 100
            calls.tofile(file.with_stem(f"{file.stem}0"))

    Life(job, tally, data / "life").through(sabotage)
    assert set(+tally.faults) >= {LOST, UNREADABLE, AGAIN, OTHERWISE}
    assert tally.faults[LOST] == 3
