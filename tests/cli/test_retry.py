"""`headrace retry`: the command that made an output, given again for its failed rows."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.cli.main import main

PIPELINE = """
source: {type: json, path: in.jsonl}
steps: [{map: {function: 'retry_steps:picky'}}]
sink: {type: json, path: out}
run: {on_error: dead_letter}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("in.jsonl").write_text("".join(json.dumps({"id": i}) + "\n" for i in range(30)))
    Path("pipeline.yaml").write_text(PIPELINE)
    code("if row['id'] % 10 == 3: raise ValueError('no threes')")
    return tmp_path


def code(line: str) -> None:
    Path("retry_steps.py").write_text(f"def picky(row):\n    {line}\n    return row\n")
    sys.modules.pop("retry_steps", None)


def ids(out: str = "out") -> list[int]:
    lines = [line for path in Path(out).glob("part-*") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_failed_rows_are_run_again_by_the_command_that_made_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "pipeline.yaml", "-q"]) == 3
    assert main(["retry", "out", "-q"]) == 3, "nothing has been mended"
    code("pass")
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    assert main(["retry", "../out"]) == 0
    assert "read 3 = written 3 + failed 0" in capsys.readouterr().out
    assert ids() == list(range(30))
    assert main(["run", "pipeline.yaml", "-q"]) == 0, "the mended pipeline is the job that is finished"


def test_another_command_may_run_the_failed_rows_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "pipeline.yaml", "-q", "--set", "steps[0].map.name=first"]) == 3
    code("pass")
    assert main(["run", "pipeline.yaml", "--retry-failed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["balance"]["written"] == 3
    assert ids() == list(range(30))
    Path("in.jsonl").write_text("{}\n" * 30)
    assert main(["retry", "out", "-q"]) == 0, "nothing is left that would have to be read"


def test_where_the_command_is_not_known_or_all_has_moved_it_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for given in ("nowhere", "in.jsonl"):
        assert main(["retry", given]) == 2
        assert f"{given}: there is nothing to retry, since no job has written here" in capsys.readouterr().err
    assert main(["run", "pipeline.yaml", "-q", "--max-failed-rows", "1", "--set", "sink.path=begun"]) == 1
    capsys.readouterr()
    assert main(["retry", "begun"]) == 2
    assert "run the command that made it to its end first" in capsys.readouterr().err
    hr.from_items([{"id": 1}]).write_json("by-python").run()
    assert main(["retry", "by-python"]) == 2
    assert "which command made it is not known; give the command that made it once more, with --retry-failed" in (
        capsys.readouterr().err
    )
    assert main(["run", "pipeline.yaml", "-q"]) == 3
    shutil.move("out", "moved")
    assert main(["retry", "moved"]) == 2
    assert "has been moved" in capsys.readouterr().err


def test_commands_with_secrets_are_not_kept() -> None:
    assert main(["run", "pipeline.yaml", "-q", "--set", "source.storage_options.secret=s3cr3t"]) == 3
    texts = [path.read_bytes() for path in Path("out").rglob("*") if path.is_file()]
    assert not any(b"s3cr3t" in text for text in texts)
    assert main(["retry", "out"]) == 2


def test_a_model_may_be_mended_too() -> None:
    Path("retry_model.py").write_text(
        "import headrace as hr\n\n\nclass Net(hr.ModelHandler):\n"
        "    def load_model(self):\n        return None\n\n"
        "    def run_inference(self, batch, model):\n"
        "        return [hr.RowError('odd') if row['id'] == 7 else 1 for row in batch]\n"
    )
    command = ["infer", "python:retry_model:Net", "in.jsonl", "-o", "out", "--format", "json", "-q"]
    assert main([*command, "--on-error", "dead_letter"]) == 3
    Path("retry_model.py").write_text(Path("retry_model.py").read_text().replace("== 7", "== 77"))
    sys.modules.pop("retry_model")
    assert main(["retry", "out", "-q"]) == 0
    assert ids() == list(range(30))


def test_a_retry_in_which_all_fail_again_leaves_a_finished_output() -> None:
    Path("in.jsonl").write_text("".join(json.dumps({"id": i}) + "\n" for i in range(300)))
    code("if row['id'] % 2: raise ValueError('odd')")
    assert main(["run", "pipeline.yaml", "-q"]) == 3
    assert main(["retry", "out", "-q"]) == 3, "150 rows fail as they did"
    assert main(["compact", "out"]) == 0
    assert main(["run", "pipeline.yaml", "-q"]) == 3, "it is finished, with rows that failed"
    letters = [
        json.loads(line) for path in Path("out/_dead_letters").iterdir() for line in path.read_text().splitlines()
    ]
    assert [letter["attempt"] for letter in letters] == [2] * 150
    assert ids() == list(range(0, 300, 2))


def test_a_retry_that_was_stopped_can_be_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "pipeline.yaml", "-q"]) == 3
    code("if row['id'] == 23: raise ValueError('still')")
    assert main(["run", "pipeline.yaml", "--retry-failed", "-q", "--set", "run.on_error=fail"]) == 1
    code("if row['id'] % 10 == 3: raise ValueError('no threes')")
    assert main(["run", "pipeline.yaml", "-q"]) == 2
    assert "headrace retry --abandon" in capsys.readouterr().err
    assert main(["retry", "out", "--abandon"]) == 0
    assert capsys.readouterr().out == "out: the retry is given up; 3 rows are failed as before it\n"
    assert main(["retry", "out", "--abandon"]) == 2
    assert "none has begun, or it is finished" in capsys.readouterr().err
    assert main(["run", "pipeline.yaml", "-q"]) == 3, "the job is the one that it was, and finished"
    assert len(list(Path("out/_dead_letters").iterdir())) == 1
    code("pass")
    assert main(["retry", "out", "-q"]) == 0
    assert ids() == list(range(30))
    assert os.listdir("out/_dead_letters") == []
