"""Processes that die at every step of a commit, as by kill -9, and what the next run makes of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine.commit.crash import CRASH_POINTS, IN_STORES, VARIABLE
from headrace.engine.commit.status import read_status
from tests.engine.commit.crashing_job import JOB
from tests.engine.commit.jobs import read_failures, read_rows

ROOT = str(Path(__file__).parents[3])


def start(kind: str, out: str, seed: int, crash_at: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.path.join(ROOT, "src")])}
    environment.pop(VARIABLE, None)
    if crash_at is not None:
        environment[VARIABLE] = crash_at
    command = [sys.executable, "-m", "tests.engine.commit.crashing_job", kind, out, str(seed)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def check_what_is_visible(out: str) -> None:
    rows = read_rows(out)
    assert rows == JOB.rows()[: len(rows)]


def run_until_done(kind: str, out: str) -> None:
    process = start(kind, out, seed=1)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert read_rows(out) == JOB.rows()
    assert sorted(read_failures(out)) == JOB.failed()
    assert read_status(out).state == "finished"
    assert read_status(out).rows == len(JOB.rows())
    assert sorted(os.listdir(os.path.join(out, ".headrace"))) == ["journal.sqlite", "lock"]


@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.heavy)])
def test_death_at_every_step(tmp_path: Path, point: str, nth: int) -> None:
    out = str(tmp_path / "out")
    kind = "csv" if point.startswith("rewrite") and nth == 2 else "parquet"
    crashed = start(kind, out, seed=0, crash_at=f"{point}:{nth}")
    crashed.communicate(timeout=60)
    if nth == 1:
        assert crashed.returncode == -signal.SIGKILL, "every point is passed in this job at least once"
    check_what_is_visible(out)
    run_until_done(kind, out)


@pytest.mark.parametrize(
    "point",
    [
        *IN_STORES,
        "part.prepared",
        *(pytest.param(point, marks=pytest.mark.heavy) for point in CRASH_POINTS if point != "part.prepared"),
    ],
)
def test_death_at_every_step_where_the_output_is_behind_a_url(tmp_path: Path, point: str) -> None:
    out = tmp_path / "out"
    crashed = start("parquet", f"local://{out}", seed=0, crash_at=point)
    crashed.communicate(timeout=60)
    assert crashed.returncode == -signal.SIGKILL
    check_what_is_visible(str(out))
    process = start("parquet", f"local://{out}", seed=1)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert read_rows(str(out)) == JOB.rows()
    assert sorted(read_failures(str(out))) == JOB.failed()
    assert not [p for p in (out / ".headrace").rglob("*") if p.is_file() and p.parent.name != "log"]


def test_death_again_and_again_while_resuming(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for seed, point in enumerate(p for p in CRASH_POINTS if not p.startswith(("rewrite", "finish"))):
        start("parquet", out, seed=seed, crash_at=point).communicate(timeout=60)
        check_what_is_visible(out)
    run_until_done("parquet", out)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_kill_at_random_moments(tmp_path: Path, kind: str) -> None:
    out = str(tmp_path / "out")
    rng = random.Random(kind)
    for seed in range(3):
        process = start(kind, out, seed)
        assert process.stdout is not None
        for _ in range(rng.randint(1, 10)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        check_what_is_visible(out)
    run_until_done(kind, out)
