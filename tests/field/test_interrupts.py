"""Ctrl-C, SIGTERM, errors and kills: one of them stops everything soon and tidily."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.field.running import SRC, Ended, end_of, rows_in, run, safe_rows, start, until, write_script

ROWS = 120
ISOLATIONS = ["thread", "process"]
HOSTS = [pytest.param(name, marks=pytest.mark.heavy) for name in ("large", "keyed")]
"""One process for all batches in flight; models by key, a process each."""
THREAD_FIRST = ["thread", pytest.param("process", marks=pytest.mark.heavy), *HOSTS]
PROCESS_FIRST = [pytest.param("thread", marks=pytest.mark.heavy), "process", *HOSTS]

SCRIPT = f"""
    import os, signal, sys, time
    import headrace as hr

    class Slow(hr.ModelHandler):
        def load_model(self):
            if sys.argv[1] == "loading":
                open(f"PID{{os.getpid()}}", "w").close()
                time.sleep(600)
        def run_inference(self, batch, model):
            if sys.argv[1] == "error" and any(r["id"] == 40 for r in batch):
                raise ValueError("boom")
            time.sleep(0.05)
            open(f"PID{{os.getpid()}}", "w").close()
            if sys.argv[1] == "stuck":
                while True:
                    time.sleep(600)
            return [r["id"] for r in batch]

    handler, where = Slow(), {{"isolation": sys.argv[2]}}
    if sys.argv[2] == "large":
        where = {{"large_model": True}}
    if sys.argv[2] == "keyed":
        handler = hr.KeyedModelHandler({{"a": Slow(), "b": Slow()}}, key="k")
        where = {{"memory_budget": hr.MemoryBudget(cpu="2GB")}}
    answered = hr.from_items([{{"id": i, "k": "ab"[i % 2]}} for i in range({ROWS})]).run_inference(
        handler, max_batch_size=4, concurrency=2, version="1", **where
    )
    write = getattr(answered, "write_" + os.environ.get("FORMAT", "json"))
    write("out").run(progress=os.environ.get("PROGRESS", False))
"""


def begin(how: str, isolation: str, **env: str) -> subprocess.Popen[str]:
    """Start the job and let it come to where rows are safe and both replicas are at work."""
    write_script(SCRIPT)
    process = start("script.py", how, isolation, **env)
    at_work = 2 if isolation == "process" else 1
    enough = 0 if how in ("stuck", "loading") else 8
    until(lambda: len(workers_seen()) >= at_work and safe_rows() >= enough, process)
    return process


def workers_seen() -> set[int]:
    return {int(path.name[3:]) for path in Path().glob("PID*")}


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits for its adopted parent to look has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def check_tidy(process: subprocess.Popen[str]) -> None:
    """No process is left, and what lies in the output is whole."""
    until(lambda: all(gone(pid) for pid in workers_seen()))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 0)
        raise AssertionError("something of the session is left")
    rows_in()


def check_goes_on(isolation: str, **env: str) -> None:
    finished = safe_rows()
    ended = run("script.py", "go on", isolation, **env)
    assert ended.code == 0, ended
    assert [row["id"] for row in rows_in()] == list(range(ROWS))
    assert finished <= safe_rows() == ROWS


def check_message(ended: Ended, name: str) -> None:
    """One short message, with numbers and how to go on."""
    rows = safe_rows()
    assert ended.err.strip() == (
        f"headrace: interrupted by {name}; {rows} rows are finished and safe. Run the same again to go on from there"
    )
    assert ended.out == ""


@pytest.mark.parametrize("isolation", [*ISOLATIONS, *HOSTS])
def test_ctrl_c(isolation: str) -> None:
    process = begin("int", isolation)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    ended = end_of(process)
    assert ended.code == -signal.SIGINT  # 130 in a shell
    check_tidy(process)
    check_message(ended, "SIGINT")
    check_goes_on(isolation)


@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.heavy)])
def test_ctrl_c_while_files_of_other_kinds_are_written(kind: str) -> None:
    process = begin("int", "thread", FORMAT=kind)
    os.killpg(process.pid, signal.SIGINT)
    ended = end_of(process)
    check_tidy(process)
    check_message(ended, "SIGINT")
    check_goes_on("thread", FORMAT=kind)


@pytest.mark.parametrize("isolation", PROCESS_FIRST)
def test_sigterm_to_the_parent_alone(isolation: str) -> None:
    process = begin("term", isolation)
    process.send_signal(signal.SIGTERM)  # as a scheduler does
    ended = end_of(process)
    assert ended.code == -signal.SIGTERM  # 143 in a shell
    check_tidy(process)
    check_message(ended, "SIGTERM")
    check_goes_on(isolation)


@pytest.mark.parametrize("isolation", PROCESS_FIRST)
def test_an_error_ends_all_and_is_told_once(isolation: str) -> None:
    write_script(SCRIPT)
    process = start("script.py", "error", isolation)
    ended = end_of(process)
    assert ended.code == 1
    assert ended.err.count("boom") == 1
    assert ended.err.count("Traceback") == 1
    last = ended.err.splitlines()[-1]
    assert "row 40 of from_items (ValueError: boom)" in last
    assert "on_error='dead_letter'" in last
    check_tidy(process)
    check_goes_on(isolation)


@pytest.mark.parametrize("isolation", THREAD_FIRST)
def test_a_second_ctrl_c_ends_at_once_what_is_stuck(isolation: str) -> None:
    process = begin("stuck", isolation)
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    until(lambda: process.poll() is not None or os.killpg(process.pid, signal.SIGINT))
    ended = end_of(process)
    if isolation == "thread":  # a thread cannot be stopped, so that the first one would take its time
        assert ended.code == 128 + signal.SIGINT
    assert "Traceback" not in ended.err
    check_tidy(process)


@pytest.mark.parametrize("isolation", PROCESS_FIRST)
@pytest.mark.parametrize("how", ["stuck", pytest.param("loading", marks=pytest.mark.heavy)])
def test_one_ctrl_c_ends_what_is_stuck_too(how: str, isolation: str) -> None:
    process = begin(how, isolation)
    os.killpg(process.pid, signal.SIGINT)
    ended = end_of(process)
    assert ended.code == -signal.SIGINT
    assert "interrupted by SIGINT" in ended.err
    assert "Traceback" not in ended.err
    check_tidy(process)


@pytest.mark.parametrize("isolation", PROCESS_FIRST)
@pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.heavy), "stuck"])
def test_workers_notice_that_their_parent_was_killed(how: str, isolation: str) -> None:
    process = begin(how, isolation)
    process.kill()
    assert end_of(process).code == -signal.SIGKILL
    check_tidy(process)
    check_goes_on(isolation)


def test_a_killed_worker_is_started_again_and_the_run_goes_on() -> None:
    process = begin("worker", "process")
    os.kill(min(workers_seen()), signal.SIGKILL)
    ended = end_of(process)
    assert ended.code == 0
    assert "a worker is started again: stage 'run_inference" in ended.err
    assert "signal 9 (SIGKILL)" in ended.err
    assert "Traceback" not in ended.err
    check_tidy(process)


PULLING = """
    import os, sys, threading, time
    import headrace as hr

    number = int(sys.argv[2])
    def slow(row):
        if sys.argv[1] == "while pulling" and row["id"] == 5_000:
            os.kill(os.getpid(), number)
            time.sleep(0.5)  # the caller waits for rows
        return row
    try:
        for row in hr.range(20_000).map(slow, isolation="thread").iter_rows():
            if sys.argv[1] == "in the caller's code" and row["id"] == 1000:
                os.kill(os.getpid(), number)
    except KeyboardInterrupt as interrupt:  # as those do who know nothing of Headrace's own exceptions
        print(type(interrupt).__name__, interrupt)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_rows_are_pulled(number: signal.Signals) -> None:
    write_script(PULLING)
    ended = run("script.py", "while pulling", str(int(number)))
    assert ended == Ended(0, f"RunInterrupted interrupted by {number.name}\n", "")


def test_signals_between_rows_are_the_callers() -> None:
    write_script(PULLING)
    caught = run("script.py", "in the caller's code", str(int(signal.SIGINT)))
    assert caught == Ended(0, "KeyboardInterrupt \n", "")
    died = run("script.py", "in the caller's code", str(int(signal.SIGTERM)))
    assert died == Ended(-signal.SIGTERM, "", "")


CHECKING = """
    import os, signal, sys, time
    import headrace as hr

    class Model(hr.ModelHandler):
        def check(self):
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(600)
        def load_model(self):
            return None
        def run_inference(self, batch, model):
            return [1 for _ in batch]

    ds = hr.range(10).run_inference(Model(), version="1")
    ds.write_json("out").run() if sys.argv[2] == "run" else getattr(ds, sys.argv[2])()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("how", ["run", "count", "stats"])
def test_a_signal_while_the_plan_is_checked(number: signal.Signals, how: str) -> None:
    write_script(CHECKING)
    assert run("script.py", str(int(number)), how) == Ended(-number, "", f"headrace: interrupted by {number.name}\n")
    assert not Path("out").exists()


COMMAND = """
    import os, time
    import headrace as hr

    class Slow(hr.ModelHandler):
        def load_model(self):
            return None
        def run_inference(self, batch, model):
            time.sleep(0.05)
            open(f"PID{os.getpid()}", "w").close()
            return [r["id"] for r in batch]
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_terminal_works_as_before(number: signal.Signals, code: int) -> None:
    write_script(COMMAND, "slow.py")
    Path("in.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(2000)))
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "infer", "python:slow:Slow", "in.jsonl", "-o", "out", "--max-batch-size", "4"],
        env={**os.environ, "PYTHONPATH": f"{SRC}:.", "TERM": "xterm", "COLUMNS": "120"},
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""

    def look() -> bytes:
        """Take what is shown; b"" at the end."""
        nonlocal shown
        try:
            more = os.read(main, 65536)
        except OSError:  # Linux, when the other end is closed
            more = b""
        shown += more
        return more

    while b"rows/s" not in shown:  # the live display is there
        assert look(), shown
    until(lambda: safe_rows() > 0)
    os.killpg(process.pid, number)
    while look():
        pass
    os.close(main)
    assert process.wait(60) == code
    text = shown.decode()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is there again"
    assert text.endswith("\r\n")
    assert text.count("interrupted by") == 1
    assert "Run the same again to go on" in text
    assert "Traceback" not in text
