"""A misspelt or misplaced setting in pipeline.yaml is an error before any work, with place and suggestion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.main import main
from tests.field.running import headrace, rows_in

Printed = pytest.CaptureFixture[str]

GOOD = """\
source: {type: json, path: in.jsonl}
steps:
  - infer: {handler: "steps:Upper", max_batch_size: 8, max_batch_duration_secs: 0.5}
sink: {type: json, path: out}
dead_letters: {path: dead}
"""

STEPS = """
import headrace as hr

class Upper(hr.ModelHandler):
    def load_model(self):
        open("LOADED", "w")
        return str.upper
    def run_inference(self, batch, model):
        return [model(r.get("text", "")) for r in batch]

class Unmakeable(Upper):
    def __init__(self):
        raise OSError("no licence")
"""


def good_with(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD = {
    "typo": (
        good_with("max_batch_size", "max_batch_szie"),
        ["line 3", "steps[0].infer.max_batch_szie", "did you mean 'max_batch_size'?"],
    ),
    "typo at the top": (
        good_with("dead_letters", "dead_leters"),
        ["line 5", "dead_leters", "did you mean 'dead_letters'?"],
    ),
    "another spelling": (good_with("max_batch_size", "max-batch-size"), ["did you mean 'max_batch_size'?"]),
    "wrong place": (
        good_with("sink:", "max_batch_size: 8\nsink:"),
        ["line 4", "max_batch_size", "belongs under steps[].infer"],
    ),
    "wrong type": (
        good_with("duration_secs: 0.5", "duration_secs: fast"),
        ["max_batch_duration_secs", "must be a number", "'fast'"],
    ),
    "makes no sense": (
        good_with("max_batch_size: 8", "max_batch_size: 0"),
        ["steps[0].infer.max_batch_size", "must be at least 1", "not 0"],
    ),
    "no time at all": (
        good_with("max_batch_size: 8", "timeout_secs: 0"),
        ["steps[0].infer.timeout_secs", "must be more than 0, not 0"],
    ),
    "more than all": (
        GOOD + "run: {max_failed_ratio: 10}\n",
        ["line 6", "run.max_failed_ratio", "must be at most 1, not 10"],
    ),
    "no amount": (GOOD + "run: {memory_limit: -1}\n", ["run.memory_limit: -1 is no number of bytes"]),
    "amount of another kind": (
        GOOD + "run: {disk_limit: [1]}\n",
        ["run.disk_limit: must be bytes, or text such as 4GB"],
    ),
    "inside a cache": (
        good_with("max_batch_size: 8", "cache: {pth: kept}"),
        ["steps[0].infer.cache.pth", "did you mean 'path'?"],
    ),
    "no cache": (good_with("max_batch_size: 8", "cache: 5"), ["steps[0].infer.cache: must be a mapping, not 5"]),
    "inside a retry": (
        good_with("max_batch_size: 8", "retry: {atempts: 3}"),
        ["steps[0].infer.retry.atempts", "did you mean 'attempts'?"],
    ),
    "given twice": (GOOD + "sink: {type: csv, path: out2}\n", ["line 6", "'sink' is given twice", "line 4"]),
    "handler": (good_with("steps:Upper", "steps:Uper"), ["'Uper'", "did you mean 'Upper'?"]),
    "handler's module": (good_with("steps:Upper", "stepz:Upper"), ["'stepz'", "did you mean 'steps'?"]),
    "handler that cannot be made": (good_with("steps:Upper", "steps:Unmakeable"), ["steps[0].infer", "no licence"]),
    "module that cannot be imported": (good_with("steps:Upper", "broken:Upper"), ["broken", "line 1"]),
    "tab": (good_with("  - infer", " \t- infer"), ["line 3, column 2", "tab"]),
    "not closed": (good_with("path: out}", "path: out"), ["line 5", "no YAML"]),
    "empty": ("", ["the file is empty", "source, steps and sink"]),
    "bytes": ("source:\n \x00\x01", ["line 2, column 2", "no YAML", "U+0000"]),
    "unknown column": (good_with("max_batch_size: 8", "inputs: txt"), ["'txt'", "did you mean 'text'?", "id, text"]),
    "missing input": (good_with("in.jsonl", "inn.jsonl"), ["inn.jsonl does not exist", "did you mean 'in.jsonl'?"]),
}


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    Path("in.jsonl").write_text('{"id": 1, "text": "a", "no": 1, "on": 2}\n')
    Path("steps.py").write_text(STEPS)
    Path("broken.py").write_text("def f(:\n")


def check_untouched(error: str) -> None:
    assert not any(Path(name).exists() for name in ("LOADED", "out", "out2", "dead"))
    for word in ("Traceback", "pydantic", "<unicode string>", "ValidationError", "yaml.scanner"):
        assert word not in error


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_told_before_any_work(name: str, capsys: Printed) -> None:
    text, told = BAD[name]
    Path("pipeline.yaml").write_text(text)
    assert main(["run", "pipeline.yaml"]) == 2
    error = capsys.readouterr().err
    assert [words for words in told if words not in error] == [], error
    check_untouched(error)


def test_all_faults_are_told_in_one_go(capsys: Printed) -> None:
    text = good_with("max_batch_size", "max_batch_szie").replace("dead_letters", "dead_leters")
    Path("pipeline.yaml").write_text(text)
    assert main(["run", "pipeline.yaml"]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'max_batch_size'?" in error
    assert "did you mean 'dead_letters'?" in error
    assert len(error.splitlines()) == 2


def test_a_good_file_runs_and_a_misspelt_one_does_not_from_the_shell() -> None:
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(BAD["typo"][0])
    bad = headrace("run", "bad.yaml")
    assert bad.code == 2
    assert bad.out == ""
    assert "bad.yaml: line 3" in bad.err
    check_untouched(bad.err)
    good = headrace("run", "good.yaml")
    assert (good.code, rows_in()[0]["prediction"]) == (0, "A")
    assert headrace("explain", "bad.yaml").err == bad.err


@pytest.mark.parametrize("column", ["no", "on", "off", "yes", "y", "n"])
def test_words_that_yaml_takes_for_truth_values_are_columns(column: str) -> None:
    Path("in.jsonl").write_text(json.dumps({"id": 1, column: 5, "text": "a"}) + "\n")
    Path("pipeline.yaml").write_text(good_with("path: in.jsonl", f"path: in.jsonl, columns: [id, {column}]"))
    assert main(["run", "pipeline.yaml"]) == 0
    assert rows_in() == [{"id": 1, column: 5, "prediction": "", "model_id": "Upper"}]


def test_a_misspelt_setting_on_the_command_line(capsys: Printed) -> None:
    Path("pipeline.yaml").write_text(GOOD)
    assert main(["run", "pipeline.yaml", "--set", "steps[0].infer.max_batch_szie=4"]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'max_batch_size'?" in error
    check_untouched(error)


@pytest.mark.parametrize(("path", "told"), [("nowhere.yaml", "no such file"), (".", "folder")])
def test_a_pipeline_file_that_is_not_there(path: str, told: str, capsys: Printed) -> None:
    assert main(["run", path]) == 2
    error = capsys.readouterr().err
    assert path in error
    assert told in error


def test_debug_shows_the_inside() -> None:
    Path("pipeline.yaml").write_text(BAD["typo"][0])
    assert "Traceback" in headrace("run", "pipeline.yaml", "--debug").err
