from __future__ import annotations

import json

import pytest

import headrace as hr
from headrace.cli.main import main
from headrace.cli.status import text_of
from headrace.engine.commit.status import OutputStatus

Printed = pytest.CaptureFixture[str]


def test_a_finished_output(capsys: Printed) -> None:
    hr.from_items([{"id": 1}, {"id": 2}]).write_json("out").run()
    assert main(["status", "out"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("out: finished\n  2 rows in 1 part, ")
    assert main(["status", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2


def test_a_folder_without_a_job(capsys: Printed) -> None:
    assert main(["status", "."]) == 0
    assert "no job has written here" in capsys.readouterr().out


def test_an_unfinished_output_says_what_to_do() -> None:
    status = OutputStatus(
        folder="out", state="unfinished", rows=5, parts=1, waiting_rows=3, dead_letters=2, dead_letters_folder="d"
    )
    assert text_of(status).splitlines() == [
        "out: unfinished",
        "  5 rows in 1 part, 0 B",
        "  3 rows finished and waiting for their part",
        "  2 dead letters in d",
        "  run the same command again to go on",
    ]
