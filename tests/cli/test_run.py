from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.cli.main import main
from tests.cli.written import rows

Printed = pytest.CaptureFixture[str]

GOOD = """\
source: {type: json, path: in.jsonl}
steps:
  - infer: {handler: "own:Upper", inputs: text, max_batch_size: 8}
sink: {type: json, path: out}
"""


@pytest.fixture(autouse=True)
def _file(folder: Path) -> None:
    Path("p.yaml").write_text(GOOD)


def test_a_good_pipeline(capsys: Printed) -> None:
    assert main(["run", "p.yaml"]) == 0
    assert [row["prediction"] for row in rows("out")] == ["GOOD", "BAD", "FAIR"]
    assert "read 3 = written 3 + failed 0 + filtered 0" in capsys.readouterr().out


def test_settings(capsys: Printed) -> None:
    assert main(["run", "p.yaml", "--set", "sink.path=other", "--set", "steps[0].infer.output=loud", "--json"]) == 0
    assert rows("other")[0]["loud"] == "GOOD"
    assert json.loads(capsys.readouterr().out)["balance"]["written"] == 3


def test_dead_letters_ask_for_themselves() -> None:
    Path("p.yaml").write_text(GOOD.replace("own:Upper", "own:Picky") + "dead_letters: {path: failed}\n")
    assert main(["run", "p.yaml", "--quiet"]) == 3
    assert [row["message"] for row in rows("failed")] == ["too dark"]


def test_overwrite() -> None:
    assert main(["run", "p.yaml", "--quiet"]) == 0
    changed = ["run", "p.yaml", "--quiet", "--set", "steps[0].infer.args={suffix: '!'}"]
    assert main(changed) == 2
    assert main([*changed, "--overwrite"]) == 0
    assert rows("out")[0]["prediction"] == "GOOD!"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace("max_batch_size", "max_batch_szie"), "steps[0].infer.max_batch_szie: is no key; did you mean 'max_batch_size'?"),
        (GOOD.replace("own:Upper", "own:Uper"), "did you mean 'Upper'?"),
        (GOOD + "sink: {type: csv, path: out2}\n", "key 'sink' is given twice"),
        (GOOD.replace("  - infer", " \t- infer"), "line 3, column 2: a tab"),
        ("", "the file is empty"),
    ],
)  # fmt: skip
def test_faults_are_told_and_nothing_is_made(text: str, told: str, capsys: Printed) -> None:
    Path("p.yaml").write_text(text)
    before = sorted(os.listdir())
    assert main(["run", "p.yaml"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: p.yaml: ")
    assert told in error
    assert "Traceback" not in error
    assert "pydantic" not in error
    assert sorted(set(os.listdir()) - {"__pycache__"}) == before


def test_columns_with_the_names_of_truth_values() -> None:
    Path("in.jsonl").write_text('{"id": 1, "no": 2, "on": 3, "rest": 4}\n')
    Path("p.yaml").write_text(
        "source: {type: json, path: in.jsonl, columns: [id, no, on]}\nsink: {type: json, path: out}\n"
    )
    assert main(["run", "p.yaml", "--quiet"]) == 0
    assert rows("out") == [{"id": 1, "no": 2, "on": 3}]


def test_explain_shows_the_plan_and_makes_nothing(capsys: Printed) -> None:
    assert main(["explain", "p.yaml"]) == 0
    assert "Upper" in capsys.readouterr().out
    assert main(["explain", "p.yaml", "--json"]) == 0
    assert {"steps", "stages"} <= set(json.loads(capsys.readouterr().out))
    assert main(["explain", "p.yaml", "--set", "sink.pth=x"]) == 2
    assert not Path("out").exists()
