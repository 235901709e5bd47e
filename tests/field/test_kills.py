"""Killed in the middle of a write: what is in the output folder is whole, and there once."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest

from tests.field.running import (
    end_of,
    headrace,
    litter,
    rows_in,
    run,
    safe_rows,
    start,
    until,
    write_script,
)

TITLE = "žluťoučký kůň " * 40
FORMATS = ["json", "parquet", "csv"]

SCRIPT = """
    import os, signal, sys, time
    import headrace as hr
    from headrace.engine.commit.status import read_status

    FORMAT = sys.argv[1]
    KILL_AT = int(os.environ.get("KILL_AT", 10**9))
    ROWS_PER_PART = int(os.environ.get("ROWS_PER_PART", 0)) or None
    ISOLATION = os.environ.get("ISOLATION", "thread")
    RUNNING = os.getpid()

    class Copy(hr.ModelHandler):
        def load_model(self):
            return None
        def run_inference(self, batch, model):
            time.sleep(0.02)  # a model at work
            status = read_status("out")
            if status.rows + status.waiting_rows >= KILL_AT:
                os.kill(RUNNING, signal.SIGKILL)
            return [r["title"] for r in batch]

    answered = hr.read_json("songs.jsonl").run_inference(
        Copy(), max_batch_size=5, concurrency=2 if ISOLATION == "process" else 1, isolation=ISOLATION, version="1"
    )
    def to(dataset, folder):
        return getattr(dataset, "write_" + FORMAT)(folder, rows_per_part=ROWS_PER_PART)
"""

ONE_SINK = (
    SCRIPT
    + """
    print(to(answered, "out").run().report())
"""
)


def write_songs(count: int = 200) -> None:
    with open("songs.jsonl", "w", encoding="utf-8") as file:
        for i in range(count):
            file.write(json.dumps({"id": i, "title": TITLE}, ensure_ascii=False) + "\n")


def check_visible() -> None:
    """All that is visible is whole: rows in the order of the input, each with its title and its answer."""
    found = rows_in()
    assert [row["id"] for row in found] == list(range(len(found)))
    assert {(row["title"], row["prediction"]) for row in found} <= {(TITLE, TITLE)}


def check_end(count: int = 200) -> None:
    assert [row["id"] for row in rows_in()] == list(range(count))
    check_visible()
    assert litter() == set()


def kill_at(rows: int, format: str, **env: str) -> int:
    """Run until so many rows are safe, then by SIGKILL no further; return how many are safe."""
    ended = run("script.py", format, KILL_AT=str(rows), **env)
    assert ended.code == -signal.SIGKILL, ended
    check_visible()
    return safe_rows()


def test_killed_again_and_again() -> None:
    write_songs()
    write_script(ONE_SINK)
    reached = [0]
    for _ in range(3):
        reached.append(kill_at(reached[-1] + 25, "json", ROWS_PER_PART="30"))
    assert reached == sorted(set(reached)), "each run gets further than the one before"
    assert rows_in(), "some rows were published before the end"
    report = run("script.py", "json", ROWS_PER_PART="30").out
    assert f"{reached[-1]} of the rows from earlier runs" in report
    check_end()


@pytest.mark.heavy
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("rows_per_part", ["", "7"])
def test_killed_seven_times(format: str, isolation: str, rows_per_part: str) -> None:
    write_songs()
    write_script(ONE_SINK)
    how = {"ISOLATION": isolation, "ROWS_PER_PART": rows_per_part or "0"}
    reached = [0]
    for _ in range(7):
        reached.append(kill_at(reached[-1] + 10, format, **how))
    assert reached == sorted(set(reached))
    assert run("script.py", format, **how).code == 0
    check_end()


@pytest.mark.heavy
@pytest.mark.parametrize("format", FORMATS)
def test_killed_at_any_moment_from_outside(format: str) -> None:
    write_songs()
    write_script(ONE_SINK)
    draw = random.Random(format)
    for _ in range(8):
        process = start("script.py", format, ROWS_PER_PART="15")
        wanted = min(190, draw.randint(0, 30) + (safe_rows() if Path("out").exists() else 0))
        until(lambda wanted=wanted: Path("out").exists() and safe_rows() >= wanted, process)  # type: ignore[misc]
        os.killpg(process.pid, signal.SIGKILL)
        end_of(process)
        check_visible()
    assert run("script.py", format, ROWS_PER_PART="15").code == 0
    check_end()


def cut(path: Path, count: int = 7) -> None:
    os.truncate(path, path.stat().st_size - count)


CUT = ["json", *(pytest.param(format, marks=pytest.mark.heavy) for format in ("csv", "parquet"))]


@pytest.mark.parametrize("format", CUT)
def test_a_finished_file_cut_by_hand_is_noticed_and_named(format: str) -> None:
    write_songs()
    write_script(ONE_SINK)
    kill_at(60, format, ROWS_PER_PART="20")
    damaged = max(Path("out").glob("part-*"))
    cut(damaged)
    ended = run("script.py", format, ROWS_PER_PART="20")
    assert ended.code == 1
    assert f"{damaged} was finished with" in ended.err
    assert "overwrite" in ended.err
    damaged.unlink()
    assert f"{damaged} was finished with" in run("script.py", format, ROWS_PER_PART="20").err


def test_a_torn_segment_costs_the_torn_rows_only() -> None:
    write_songs()
    write_script(ONE_SINK)
    before = kill_at(60, "json")
    cut(max(Path("out/.headrace/segments").glob("*")))
    after = safe_rows()
    assert 0 < after < before
    report = run("script.py", "json").out
    assert f"{after} of the rows from earlier runs" in report
    check_end()


@pytest.mark.parametrize("damage", ["cut", "filled with nonsense"])
def test_a_damaged_journal_is_refused(damage: str) -> None:
    write_songs(50)
    write_script(ONE_SINK)
    assert run("script.py", "json").code == 0
    journal = Path("out/.headrace/journal.sqlite")
    if damage == "cut":
        os.truncate(journal, 5_000)
    else:
        journal.write_bytes(b"nonsense" * 2_000)
    ended = run("script.py", "json")
    assert ended.code == 1
    assert "out/.headrace/journal.sqlite" in ended.err
    assert "overwrite" in ended.err
    assert "sqlite3." not in ended.err.splitlines()[-1]
    assert [row["id"] for row in rows_in()] == list(range(50)), "what was there is untouched"


def test_two_runs_at_once_do_not_write_to_one_folder() -> None:
    write_songs()
    write_script(ONE_SINK)
    first = start("script.py", "json")
    until(lambda: Path("out").exists() and safe_rows() >= 20, first)
    first.send_signal(signal.SIGSTOP)  # given up for dead, and yet not
    second = run("script.py", "json")
    first.send_signal(signal.SIGCONT)
    assert second.code == 1
    assert "another run is writing to out" in second.err
    assert end_of(first).code == 0
    check_end()


SHAPES = (
    SCRIPT
    + """
    def doubled(row):
        yield row
        yield {**row, "id": row["id"] + 1000}
    def fails_at_times(row):
        if row["id"] % 10 == 3:
            raise ValueError("no")
        return row
    even = answered.filter(lambda r: r["id"] % 2 == 0)
    jobs = {
        "limit": lambda: [to(answered.limit(90), "out")],
        "flat_map": lambda: [to(answered.flat_map(doubled), "out")],
        "filter": lambda: [to(even, "out")],
        "dead letters": lambda: [to(answered.map(fails_at_times), "out")],
        "two sinks": lambda: [to(answered, "out"), to(answered, "other")],
        "branches": lambda: [to(even.flat_map(doubled), "out"), to(answered.map(fails_at_times).limit(120), "other")],
        "two formats": lambda: [answered.write_parquet("out"), answered.write_csv("other", rows_per_part=17)],
    }
    result = hr.run(*jobs[sys.argv[2]](), on_error="dead_letter")
    print(result.report())
"""
)
SHAPE_NAMES = ["limit", "flat_map", "filter", "dead letters", "two sinks", "branches", "two formats"]


def results() -> dict[str, list[str]]:
    """Return all visible rows and dead letters, by folder."""
    found = {}
    for folder in ("out", "other"):
        if Path(folder).exists():
            found[folder] = [json.dumps(row, sort_keys=True) for row in rows_in(folder)]
            letters = Path(folder, "_dead_letters")
            if letters.exists():
                found[str(letters)] = [json.dumps([r["position"], r["message"]]) for r in rows_in(str(letters))]
    return found


def check_shape(shape: str, format: str, kills: int, **env: str) -> None:
    write_songs()
    write_script(SHAPES)
    assert run("script.py", format, shape, **env).code == 0
    expected = results()
    for folder in ("out", "other"):
        if Path(folder).exists():
            Path(folder).rename(f"expected-{folder}")
    for number in range(kills):
        reached = safe_rows() if Path("out").exists() else 0
        if number and reached > 0.6 * len(expected["out"]):
            break
        ended = run("script.py", format, shape, KILL_AT=str(reached + 10), **env)
        assert ended.code == -signal.SIGKILL, ended
        for name, rows in results().items():
            assert rows == expected[name][: len(rows)]
    ended = run("script.py", format, shape, **env)
    assert ended.code == 0, ended
    assert results() == expected
    assert litter() == set()


def test_killed_with_branches_limit_and_dead_letters() -> None:
    check_shape("branches", "json", 1, ROWS_PER_PART="20")


@pytest.mark.heavy
@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_killed_in_any_shape(shape: str, isolation: str) -> None:
    check_shape(shape, "parquet", 3, ISOLATION=isolation, ROWS_PER_PART="20")
    assert "finished" in headrace("status", "out").out
