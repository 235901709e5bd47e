from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.formats import format_of, is_tab_separated
from headrace.errors import PlanError


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        (["a.csv"], "csv"),
        (["data/*.CSV.gz"], "csv"),
        (["a.tsv"], "csv"),
        (["s3://bucket/x/*.jsonl.zst"], "json"),
        (["a.ndjson", "b.json"], "json"),
        (["a.pq"], "parquet"),
        (["notes.txt"], "text"),
        (["a.JPG", "b.png"], "images"),
    ],
)
def test_told_by_suffix(inputs: list[str], name: str) -> None:
    assert format_of(inputs) == name


def test_told_by_what_a_folder_or_pattern_holds(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.parquet").touch()
    (tmp_path / "data" / "_SUCCESS").touch()
    assert format_of([str(tmp_path / "data")]) == "parquet"
    assert format_of([str(tmp_path / "data" / "d*" / "*")]) == "parquet"


def test_a_folder_of_two_kinds_must_be_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.json").touch()
    with pytest.raises(PlanError, match=r"files of several formats \(csv, json\); pass --input-format"):
        format_of([str(tmp_path)])


def test_quarrelling_names() -> None:
    with pytest.raises(PlanError, match="a.csv looks like csv but b.parquet looks like parquet"):
        format_of(["a.csv", "b.parquet"])


@pytest.mark.parametrize("text", ["nowhere", "http://host/data", "x.dat", "csv"])
def test_names_that_tell_nothing(text: str) -> None:
    with pytest.raises(PlanError, match="cannot tell the format"):
        format_of([text])


def test_tabs_by_name() -> None:
    assert is_tab_separated(["A.TSV"])
    assert not is_tab_separated(["a.tsv", "b.csv"])
