"""Processes that are stopped for a while and go on (SIGSTOP, a laptop that sleeps), and a wall clock that jumps."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.field.running import SRC, end_of, litter, rows_in, run, safe_rows, start, until, write_script

SCRIPT = """
    import os, sys, time
    import headrace as hr

    if os.environ.get("JUMPING"):
        days = iter(range(10**9))
        time.time = lambda: 1.7e9 + 86_400 * (next(days) * 7_919 % 1_000 - 500)

    class Shout(hr.ModelHandler):
        def load_model(self):
            return str.upper
        def run_inference(self, batch, model):
            time.sleep(0.002 * len(batch))
            return [model(row["name"]) for row in batch]

    def marked(row):
        time.sleep(0.002)
        return {**row, "mark": row["id"] * 2}

    rows = hr.read_json("in.jsonl").map(marked, isolation="process", concurrency=2)
    job = rows.run_inference(Shout(), isolation="process", max_batch_size=10, version="1")
    print(job.write_json("out", rows_per_part=100).run().report())
"""
ROWS = 400


@pytest.fixture(autouse=True)
def _input(folder: Path) -> None:
    write_script(SCRIPT)
    Path("in.jsonl").write_text("".join(json.dumps({"id": i, "name": f"n{i}"}) + "\n" for i in range(ROWS)))


def check_end() -> None:
    assert rows_in() == [
        {"id": i, "name": f"n{i}", "mark": 2 * i, "prediction": f"N{i}", "model_id": "Shout"} for i in range(ROWS)
    ]
    assert litter() == set()


def at_work(process: subprocess.Popen[str], rows: int) -> Callable[[], bool]:
    return lambda: Path("out").exists() and safe_rows() >= rows


def stop(process: psutil.Process) -> None:
    process.send_signal(signal.SIGSTOP)
    until(lambda: process.status() == psutil.STATUS_STOPPED)


def test_main_and_each_worker_are_stopped_in_turn_and_go_on() -> None:
    running = start("script.py")
    until(at_work(running, 20), running)
    main = psutil.Process(running.pid)
    for number, process in enumerate([main, *main.children(), main]):
        stop(process)
        others = [other for other in [main, *main.children()] if other != process]
        assert all(other.is_running() for other in others)
        process.send_signal(signal.SIGCONT)
        until(at_work(running, 30 + 20 * number), running)
    assert end_of(running).code == 0
    check_end()


def test_stopped_and_then_killed() -> None:
    running = start("script.py")
    until(at_work(running, 50), running)
    main = psutil.Process(running.pid)
    workers = main.children()
    for process in (*workers, main):
        stop(process)
    main.kill()
    end_of(running)
    assert not psutil.wait_procs(workers, timeout=30)[1], "stopped workers end with their parent"
    kept = safe_rows()
    assert kept >= 50
    assert f"{kept} of the rows from earlier runs" in run("script.py").out
    check_end()


def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    assert run("script.py", JUMPING="1").code == 0
    check_end()


def test_the_wall_clock_is_asked_only_for_what_people_are_told() -> None:
    asking = ("time.time(", "time.localtime(", "datetime.now(", "datetime.utcnow(", "date.today(")
    found = {p.name for p in Path(SRC, "headrace").rglob("*.py") if any(word in p.read_text() for word in asking)}
    assert found <= {"remote_log.py"}, "who writes to a store, and since when"
