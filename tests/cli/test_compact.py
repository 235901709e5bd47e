"""`headrace compact`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_parts_are_put_together(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    getattr(hr.range(30), f"write_{kind}")("out", rows_per_part=4).run()
    assert main(["compact", "out", "--rows-per-part", "20"]) == 0
    assert capsys.readouterr().out.startswith("out: 30 rows in 2 parts (there were 8), ")
    assert main(["compact", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == 1
    assert [row["id"] for row in getattr(hr, f"read_{kind}")("out/part-*").iter_rows()] == list(range(30))


def test_parquet_stays_compressed_as_it_was() -> None:
    hr.range(30).write_parquet("out", rows_per_part=4, compression="zstd").run()
    assert main(["compact", "out"]) == 0
    assert pq.read_metadata("out/part-00000.parquet").row_group(0).column(0).compression == "ZSTD"


def test_text_stays_packed_as_it_was() -> None:
    hr.range(30).write_csv("out", rows_per_part=4, compression="gzip").run()
    assert main(["compact", "out"]) == 0
    assert sorted(path.name for path in Path("out").glob("part-*")) == ["part-00000.csv.gz"]
    assert [row["id"] for row in hr.read_csv("out/part-*").iter_rows()] == list(range(30))


def test_a_folder_without_a_job_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "nowhere"]) == 2
    assert "nowhere: there is nothing to compact" in capsys.readouterr().err
