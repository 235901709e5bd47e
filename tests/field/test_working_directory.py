"""Users' code that changes the working directory: outputs stay where they were asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import StageError
from tests.field.running import rows_in

ROWS = 20_000


def job(*, fails_at: int = -1) -> hr.Job:
    def wander(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 10:
            os.chdir("elsewhere")
        if row["id"] in (fails_at, 15):
            raise ValueError("no")
        return row

    return hr.range(ROWS).map(wander, isolation="thread", version="1").write_json("out", rows_per_part=3_000)


def test_outputs_and_dead_letters_stay_where_they_were_asked_for(tmp_path: Path) -> None:
    os.mkdir("elsewhere")
    result = job().run(on_error="dead_letter")
    assert os.getcwd() == str(tmp_path / "elsewhere")
    assert os.listdir() == []
    os.chdir(tmp_path)
    assert (result.rows_written, result.failed) == (ROWS - 1, 1)
    assert [row["id"] for row in rows_in()] == [i for i in range(ROWS) if i != 15]
    assert [letter["row"]["id"] for letter in rows_in("out/_dead_letters")] == [15]
    assert job().run(on_error="dead_letter").rows_written == 0, "it is found finished"


def test_a_run_that_finished_nothing_leaves_nothing(tmp_path: Path) -> None:
    os.mkdir("elsewhere")
    with pytest.raises(StageError, match="row 11"):
        job(fails_at=11).run()
    assert os.listdir() == []
    assert os.listdir(tmp_path) == ["elsewhere"]
