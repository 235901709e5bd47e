"""Something changed between two runs: a harmless change costs nothing, a harmful one is noticed and named."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.field.running import Ended, rows_in, run, safe_rows, write_script

SCRIPT = """
    import os, sys, time
    import headrace as hr

    GREETING = "hi"

    class Greet(hr.ModelHandler):
        def __init__(self, version):
            self.version = version
        def model_files(self):
            return ["model.txt"]
        def load_model(self):
            return open("model.txt").read() + self.version
        def run_inference(self, batch, model, inference_args=None):
            time.sleep(0.06)  # a model at work
            with open("calls.log", "a") as log:
                log.writelines(r["name"] + "\\n" for r in batch)
            if os.environ.get("DIE") and sum(1 for _ in open("calls.log")) > 50:
                os._exit(9)
            return [f"{GREETING} {r['name']} {model}" for r in batch]

    def tidied(row):
        return {"name": row["name"].strip()}

    def marked(mark):
        return lambda row: {**row, "mark": mark}

    env = os.environ.get
    greeted = (
        hr.read_csv("faces*.csv")
        .map(tidied)
        .run_inference(
            Greet("v" + env("VERSION", "1")),
            max_batch_size=int(env("BATCH", 5)),
            concurrency=int(env("CONCURRENCY", 1)),
            isolation=env("ISOLATION", "thread"),
            output=env("OUTPUT", "greeting"),
        )
        .map(marked(env("MARK", "!")))
    )
    to = {"json": greeted.write_json, "csv": greeted.write_csv, "parquet": greeted.write_parquet}
    job = to[env("FORMAT", "json")]("out", if_exists=env("IF_EXISTS", "resume"))
    print(job.run(num_cpus=int(env("WORKERS", 2)), on_error=env("ON_ERROR", "fail"),
                  on_change=env("ON_CHANGE", "fail")).report())
"""
OLD = [f"n{i:03d}" for i in range(100)]


def write_faces(names: list[str], file: str = "faces.csv") -> None:
    Path(file).write_text("name\n" + "".join(name + "\n" for name in names))


def calls() -> Counter[str]:
    return Counter(Path("calls.log").read_text().split())


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run died when about half was done."""
    folder = tmp_path_factory.mktemp("begun")
    before = os.getcwd()
    os.chdir(folder)
    try:
        write_faces(OLD)
        Path("model.txt").write_text("m")
        write_script(SCRIPT)
        assert run("script.py", DIE="1").code == 9
        assert sum(calls().values()) == 55
        assert 40 <= safe_rows() <= 50
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def half_done(begun: Path, folder: Path) -> int:
    """A copy of it as the current folder; the number of finished rows."""
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    return safe_rows()


def edit(old: str, new: str) -> None:
    text = Path("script.py").read_text()
    assert old in text
    Path("script.py").write_text(text.replace(old, new))


def check_went_on(ended: Ended, finished: int) -> None:
    """All rows are there once, none was made twice but those of the batch in work, and the report has the numbers."""
    assert ended.code == 0, ended
    assert [row["name"] for row in rows_in()] == OLD
    assert all(row["greeting"] == f"hi {row['name']} mv1" for row in rows_in())
    assert sum(calls().values()) == 55 + 100 - finished <= 115
    assert f"{finished} of the rows from earlier runs" in ended.out
    assert f"written {100 - finished} +" in ended.out


def check_refused(ended: Ended, finished: int, named: str) -> None:
    """Nothing was mixed; the message names the change, the numbers, and how to start afresh."""
    assert ended.code == 1, ended
    message = ended.err.splitlines()[-1]
    assert message.startswith("headrace.errors.ResumeError: ")
    assert re.search(named, message), message
    assert f"{finished} " in message
    assert "if_exists=" in message
    assert "overwrite" in message
    assert sum(calls().values()) == 55, "no model ran"
    assert rows_in() == []


@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.heavy)])
def test_files_of_other_kinds_go_on_and_refuse_alike(kind: str) -> None:
    write_faces(OLD)
    Path("model.txt").write_text("m")
    write_script(SCRIPT)
    assert run("script.py", DIE="1", FORMAT=kind).code == 9
    finished = safe_rows()
    assert 40 <= finished <= 50
    check_refused(run("script.py", VERSION="2", FORMAT=kind), finished, "model run_inference has changed")
    write_faces(INPUT_CHANGES["grown at the end"])
    check_refused(run("script.py", FORMAT=kind), finished, r"input is not what it was .*faces\.csv changed")
    write_faces(OLD)
    check_went_on(run("script.py", BATCH="7", FORMAT=kind), finished)


def test_nothing_changed(half_done: int) -> None:
    check_went_on(run("script.py"), half_done)
    again = run("script.py")
    assert "an earlier run of the same job had finished it" in again.out
    assert "100 of the rows from earlier runs" in again.out
    assert sum(calls().values()) == 155 - half_done, "nothing was made again"


@pytest.mark.parametrize(
    "how",
    [
        {"BATCH": "7", "WORKERS": "1"},
        {"BATCH": "100"},
        {"ISOLATION": "process", "CONCURRENCY": "2"},
        {"ON_ERROR": "dead_letter"},
    ],
)
def test_how_the_job_runs_does_not_count(half_done: int, how: dict[str, str]) -> None:
    check_went_on(run("script.py", **how), half_done)


def test_a_touched_input_and_model_are_the_same(half_done: int) -> None:
    for file in ("faces.csv", "model.txt"):
        os.utime(file, (1, 1))
    check_went_on(run("script.py"), half_done)


def test_comments_layout_and_another_file_name_of_the_script_are_the_same(half_done: int) -> None:
    edit("def tidied(row):\n", "def tidied(row):\n\n    # trims\n")
    Path("script.py").rename("renamed.py")
    check_went_on(run("renamed.py"), half_done)


INPUT_CHANGES = {
    "rows put in front, one taken out": ["extra1", "extra2", *OLD[:50], *OLD[51:]],
    "grown at the end": [*OLD, "z1"],
    "shrunk": OLD[:60],
    "emptied": [],
    "replaced, as long as before": [name.replace("n", "m") for name in OLD],
    "one letter of a finished row": ["x000", *OLD[1:]],
    "one letter of the last row": [*OLD[:-1], "x099"],
}


@pytest.mark.parametrize("change", INPUT_CHANGES)
def test_a_changed_input_is_refused(half_done: int, change: str) -> None:
    write_faces(INPUT_CHANGES[change])
    check_refused(run("script.py"), half_done, r"input is not what it was .*faces\.csv changed")


def test_a_changed_input_afresh_and_the_old_input_put_back(half_done: int, tmp_path: Path) -> None:
    new = INPUT_CHANGES["rows put in front, one taken out"]
    write_faces(new)
    check_refused(run("script.py"), half_done, "changed")
    write_faces(OLD)
    check_went_on(run("script.py"), half_done)
    write_faces(new)
    ended = run("script.py", IF_EXISTS="overwrite")
    assert ended.code == 0, ended
    assert [row["name"] for row in rows_in()] == new
    assert all(row["greeting"] == f"hi {row['name']} mv1" for row in rows_in())


def test_a_renamed_input_is_the_same(half_done: int) -> None:
    Path("faces.csv").rename("faces2.csv")
    check_went_on(run("script.py"), half_done)


def names() -> list[str]:
    return [row["name"] for row in rows_in()]


@pytest.mark.parametrize("late", ["faces-before.csv", "faces2.csv"])
def test_a_file_more_is_run_behind_the_others_once(half_done: int, late: str) -> None:
    write_faces(["late"], late)
    assert run("script.py").code == 0
    assert names() == [*OLD, "late"]
    write_faces(["later"], "faces0.csv")
    assert run("script.py").code == 0, "also when the job had been finished"
    assert names() == [*OLD, "late", "later"]
    assert sum(calls().values()) == 55 + 100 - half_done + 2, "nothing was made again"
    assert "an earlier run of the same job had finished it" in run("script.py").out


def test_changed_content_beside_what_is_finished(half_done: int) -> None:
    write_faces(["new1", "new2"])
    write_faces(["late"], "faces2.csv")
    check_refused(run("script.py"), half_done, r"faces\.csv changed; faces2\.csv is new")
    ended = run("script.py", ON_CHANGE="continue_new_input")
    assert ended.code == 0, ended
    assert "faces.csv changed" in ended.err
    assert names() == [*OLD[:half_done], "new1", "new2", "late"]
    assert "an earlier run of the same job had finished it" in run("script.py").out


def test_a_changed_input_restarts_its_output_if_that_was_asked_for(half_done: int) -> None:
    write_faces(["new1", "new2"])
    ended = run("script.py", ON_CHANGE="restart")
    assert ended.code == 0, ended
    assert names() == ["new1", "new2"]
    write_faces(["late"], "faces2.csv")
    assert run("script.py", ON_CHANGE="restart").code == 0
    assert names() == ["new1", "new2", "late"]
    assert calls()["new1"] == 1, "what was only added is no reason to start afresh"


def test_a_missing_input_is_told_as_such(half_done: int) -> None:
    Path("faces.csv").unlink()
    ended = run("script.py")
    assert ended.code == 1
    assert "NoInputError" in ended.err.splitlines()[-1]
    assert "faces*.csv" in ended.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('GREETING = "hi"', 'GREETING = "ho"', "model run_inference has changed"),
        ('{model}" for r', '{model}." for r', "model run_inference has changed"),
        ('row["name"].strip()', 'row["name"].strip().lower()', r"step map\(tidied\) has changed"),
        (".map(tidied)", ".map(tidied).filter(lambda r: True)", "step filter is new"),
        (".map(tidied)", "", r"step map\(tidied\) is gone"),
        ("greeted.write_json", "greeted.write_csv", "output format has changed"),
        ("greeted.write_json", "greeted.limit(70).write_json", "step limit is new"),
        ('hr.read_csv("faces*.csv")', 'hr.read_csv("faces*.csv", dtypes={"name": "string"})', "source read_csv"),
    ],
)
def test_changed_code_is_refused(half_done: int, old: str, new: str, named: str) -> None:
    edit(old, new)
    check_refused(run("script.py"), half_done, named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"VERSION": "2"}, "model run_inference has changed"),
        ({"OUTPUT": "answer"}, "model run_inference has changed"),
        ({"MARK": "?"}, "step map.* has changed"),
    ],
)
def test_changed_state_and_closures_are_refused(half_done: int, change: dict[str, str], named: str) -> None:
    check_refused(run("script.py", **change), half_done, named)


def test_a_changed_model_file_is_refused(half_done: int) -> None:
    Path("model.txt").write_text("M")
    check_refused(run("script.py"), half_done, "model run_inference has changed")


def test_a_finished_job_is_not_mixed_with_another_either(half_done: int) -> None:
    assert run("script.py").code == 0
    before = rows_in()
    ended = run("script.py", VERSION="2")
    assert ended.code == 1
    assert "model run_inference has changed. It holds 100 finished rows" in ended.err
    assert rows_in() == before
