from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace.cli.main import main
from headrace.cli.status import text_of
from headrace.engine.commit.input_status import InputStatus
from headrace.engine.commit.status import OutputStatus

Printed = pytest.CaptureFixture[str]


def test_a_finished_output(capsys: Printed) -> None:
    hr.from_items([{"id": 1}, {"id": 2}]).write_json("out").run()
    assert main(["status", "out"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("out: finished\n  2 rows in 1 part, ")
    assert main(["status", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2


def test_a_folder_as_a_url(tmp_path: Path, capsys: Printed) -> None:
    hr.from_items([{"a": 1}]).write_json(f"file://{tmp_path}/out").run()
    assert main(["status", f"file://{tmp_path}/out"]) == 0
    assert "out: finished" in capsys.readouterr().out


def test_the_input_file_by_file(capsys: Printed) -> None:
    for name in ("a", "b"):
        Path(f"{name}.rows.jsonl").write_text("".join(f'{{"id": "{name}{i}"}}\n' for i in range(3)))

    def fails(row: dict[str, str]) -> dict[str, str]:
        if row["id"] == "b1":
            raise ValueError("b1")
        return row

    hr.read_json("*.rows.jsonl").map(fails).write_json("out").run(on_error="dead_letter")
    assert main(["status", "out"]) == 0
    assert "  input: 2 done\n    a.rows.jsonl and 1 more file: done, 1 row failed" in capsys.readouterr().out
    assert main(["status", "out", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["inputs"]
    assert told == [{"names": ["a.rows.jsonl", "b.rows.jsonl"], "state": "done", "failed": 1}]


def test_an_output_behind_a_url(capsys: Printed) -> None:
    hr.from_items([{"id": 1}, {"id": 2}]).write_json("memory://status/out").run()
    assert main(["status", "memory://status/out"]) == 0
    assert capsys.readouterr().out.startswith("memory://status/out: finished\n  2 rows in 1 part, ")


def test_many_files_that_want_a_look_are_counted() -> None:
    inputs = tuple(InputStatus(names=(f"{i}.csv",), state="open") for i in range(12))
    status = OutputStatus(folder="out", state="unfinished", inputs=inputs)
    lines = text_of(status).splitlines()
    assert lines[2:4] == ["  input: 12 open", "    0.csv: open"]
    assert lines[-2:] == ["    and 2 more", "  run the same command again to go on"]


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


def test_a_retry_that_was_stopped_is_told() -> None:
    text = text_of(OutputStatus(folder="out", state="unfinished", rows=5, parts=1, retrying=2))
    assert text.endswith("2 failed rows being run again: headrace retry goes on with it")
