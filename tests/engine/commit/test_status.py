from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.engine.commit.status import read_status


def test_a_journal_that_a_run_is_making_at_this_moment(tmp_path: Path) -> None:
    (tmp_path / ".headrace").mkdir()
    path = tmp_path / ".headrace" / "journal.sqlite"
    path.touch()
    assert read_status(str(tmp_path)).state == "never ran"
    database = sqlite3.connect(path)
    database.execute("create table another (a)")
    database.close()
    assert read_status(str(tmp_path)).state == "never ran"
