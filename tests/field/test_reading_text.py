"""Text that is awkward to cut: line breaks inside cells, and rows far longer than the rest."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import headrace as hr
from headrace.errors import StageError
from headrace.sources import pieces
from tests.field.running import rows_in

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, 1),
    ".bz2": lambda data: bz2.compress(data, 1),
    ".zst": lambda data: zstandard.compress(data),
}


class Answer(hr.ModelHandler):
    """Answers each row by a function of it."""

    def __init__(self, function):
        self.function = function

    def load_model(self):
        return self.function

    def run_inference(self, batch, model):
        return [model(row) for row in batch]


def line_breaks(row: dict[str, Any]) -> int:
    return row["text"].count("\n")


def letters(count: int, *, delimiter: str = ",", line_end: str = "\r\n") -> bytes:
    """Make CSV in which each line inside a cell looks like a whole row of this very file."""
    draw = random.Random(1)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end)
    writer.writerow(["id", "text", "stars"])
    for i in range(count):
        lines = [delimiter.join([str(draw.randint(0, count)), "the parcel came late", str(k)]) for k in range(i % 13)]
        writer.writerow([i, "\r\n".join(lines) if i % 2 else "\n".join([*lines, 'so "they" said']), i % 6])
    return text.getvalue().encode()


def as_python_reads(data: bytes, delimiter: str = ",") -> list[tuple[int, str]]:
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""), delimiter=delimiter)
    return [(int(row["id"]), row["text"]) for row in rows]


def check_letters(data: bytes, found: list[dict[str, Any]], delimiter: str = ",") -> None:
    assert [(row["id"], row["text"]) for row in found] == as_python_reads(data, delimiter)
    for row in found:
        assert row["prediction"] == max(0, row["id"] % 13 - row["id"] % 2)


@pytest.mark.parametrize("num_cpus", [1, None, 4])
def test_line_breaks_inside_cells_belong_to_their_cells(num_cpus: int | None) -> None:
    data = letters(20_000)
    Path("letters.csv").write_bytes(data)
    job = hr.read_csv("letters.csv").run_inference(Answer(line_breaks), max_batch_size=64).write_json("out")
    report = job.run(num_cpus=num_cpus).report()
    found = rows_in()
    check_letters(data, found)
    assert [row["id"] for row in found] == list(range(20_000))
    assert sum(row["prediction"] for row in found) == 110_748
    assert str(report.balance()) == "read 20,000 = written 20,000 + failed 0 + filtered 0"


@pytest.mark.parametrize("num_cpus", [1, None])
def test_files_large_enough_to_be_cut_are_cut_between_rows(num_cpus: int | None, monkeypatch) -> None:
    for module in ("extents", "csv"):
        monkeypatch.setattr(f"headrace.sources.{module}.SPLIT_BYTES", 200_000)
        monkeypatch.setattr(f"headrace.sources.{module}.CUT_ABOVE_BYTES", 300_000)
    monkeypatch.setattr(pieces.pieces, "__kwdefaults__", {"delimiter": None, "whole_bytes": 0, "piece_bytes": 50_000})
    data = letters(8_000)
    Path("letters.csv").write_bytes(data)
    statistics = (
        hr.read_csv("letters.csv")
        .run_inference(Answer(line_breaks), max_batch_size=64)
        .write_parquet("out")
        .run(num_cpus=num_cpus)
        .statistics
    )
    assert statistics.sources[0].splits > 3
    check_letters(data, rows_in())


@pytest.mark.parametrize(
    ("packed", "delimiter", "line_end"),
    [("", ";", "\r\n"), (".gz", ",", "\n"), (".bz2", "\t", "\n"), (".zst", ",", "\r\n")],
)
def test_line_breaks_inside_cells_in_all_dialects(packed: str, delimiter: str, line_end: str) -> None:
    data = letters(1_000, delimiter=delimiter, line_end=line_end)
    Path(f"letters.csv{packed}").write_bytes(PACK[packed](data.rstrip()))
    ds = hr.read_csv(f"letters.csv{packed}", delimiter=delimiter)
    ds.run_inference(Answer(line_breaks), max_batch_size=64).write_json("out").run()
    check_letters(data, rows_in(), delimiter)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_line_breaks_survive_a_way_through_csv_files_and_processes(isolation: str) -> None:
    data = letters(500)
    Path("letters.csv").write_bytes(data)
    ds = hr.read_csv("letters.csv").run_inference(Answer(line_breaks), max_batch_size=64, isolation=isolation)
    ds.write_csv("out").run()
    check_letters(data, hr.read_csv("out").take(1_000))


def test_line_breaks_in_the_header() -> None:
    Path("in.csv").write_text('id,"text\nof the letter"\n1,"a\nb"\n')
    assert hr.read_csv("in.csv").take() == [{"id": 1, "text\nof the letter": "a\nb"}]


def test_a_quote_that_never_closes_costs_its_row_alone() -> None:
    Path("in.csv").write_text('id,text\n1,"a\nb"\n2,"never\n3,closed\n')
    result = hr.read_csv("in.csv").write_json("out").run(on_error="dead_letter")
    assert rows_in() == [{"id": 1, "text": "a\nb"}]
    (letter,) = rows_in("out/_dead_letters")
    assert (letter["file"], letter["position"]) == ("in.csv", 1)
    assert "never closed" in letter["message"]
    assert result.failed == 1


# -- one row far longer than the rest -----------------------------------------------------------------------------------

HUGE = 12_000_000


def length(row: dict[str, Any]) -> int:
    return len(row["scan"])


def scans(long_at: int) -> list[dict[str, Any]]:
    rows = [{"id": i, "scan": "ab" * 20} for i in range(5)]
    rows[long_at]["scan"] = "x" * HUGE
    return rows


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("long_at", [0, 2, 4])
@pytest.mark.parametrize("kind", ["plain", "no final newline", "packed", "one core"])
def test_a_line_of_12_mb_is_a_line(long_at: int, kind: str) -> None:
    data = as_lines(scans(long_at))
    name = "scans.jsonl.gz" if kind == "packed" else "scans.jsonl"
    data = data.rstrip() if kind == "no final newline" else data
    Path(name).write_bytes(PACK[".gz"](data) if kind == "packed" else data)
    job = hr.read_json(name).run_inference(Answer(length), max_batch_size=4).write_parquet("out")
    job.run(num_cpus=1 if kind == "one core" else None)
    table = pq.read_table("out", columns=["id", "prediction"])
    assert table["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["prediction"].to_pylist() == [HUGE if i == long_at else 40 for i in range(5)]


@pytest.mark.parametrize(
    ("kind", "isolation"),
    [("csv", "thread"), ("text", "thread"), ("parquet", "thread"), ("items", "thread"), ("items", "process")],
)
def test_a_row_of_12_mb_is_a_row_in_every_format(kind: str, isolation: str) -> None:
    rows = scans(2)
    if kind == "csv":
        with open("scans.csv", "w", newline="") as file:
            csv.writer(file).writerows([["id", "scan"], *([row["id"], row["scan"]] for row in rows)])
        ds = hr.read_csv("scans.csv")
    elif kind == "text":
        Path("scans.txt").write_text("".join(row["scan"] + "\n" for row in rows))
        ds = hr.read_text("scans.txt").rename({"text": "scan"})
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), "scans.parquet")
        ds = hr.read_parquet("scans.parquet")
    else:
        ds = hr.from_items(rows)
    ds = ds.run_inference(Answer(length), max_batch_size=4, isolation=isolation)
    hr.run(ds.write_csv("csv"), ds.write_json("json"), ds.write_parquet("parquet"))
    for out in ("json", "parquet"):
        assert [row["prediction"] for row in rows_in(out)] == [40, 40, HUGE, 40, 40]
    assert [len(row["scan"]) for row in hr.read_csv("csv").take()] == [40, 40, HUGE, 40, 40]


def test_a_torn_line_of_12_mb_fails_alone() -> None:
    lines = as_lines(scans(2)).splitlines()
    lines[2] = lines[2][:-2]
    Path("scans.jsonl").write_bytes(b"\n".join(lines))
    hr.read_json("scans.jsonl").run_inference(Answer(length)).write_json("out").run(on_error="dead_letter")
    assert [row["id"] for row in rows_in()] == [0, 1, 3, 4]
    (letter,) = rows_in("out/_dead_letters")
    assert (letter["file"], letter["position"], letter["error_type"]) == ("scans.jsonl", 2, "SourceError")
    assert len(letter["message"]) < 1_000


@pytest.mark.parametrize("long_at", [0, 2, 4])
@pytest.mark.parametrize("kind", ["jsonl", "txt", "csv"])
def test_a_row_beyond_the_limit_fails_alone(long_at: int, kind: str, monkeypatch) -> None:
    monkeypatch.setattr("headrace.sources.pieces.MAX_RECORD_BYTES", 1_000_000)
    monkeypatch.setattr("headrace.sources.csv.CUT_ABOVE_BYTES", 1_000)
    rows = [{"id": i, "scan": "x\n" * 9_000_000 if i == long_at and kind == "csv" else "ab"} for i in range(5)]
    if kind == "csv":
        with open("scans.csv", "w", newline="") as file:
            csv.writer(file).writerows([["id", "scan"], *([row["id"], row["scan"]] for row in rows)])
        ds = hr.read_csv("scans.csv")
    else:
        rows[long_at]["scan"] = "x" * HUGE
        Path(f"scans.{kind}").write_bytes(as_lines(rows))
        ds = hr.read_json("scans.jsonl") if kind == "jsonl" else hr.read_text("scans.txt")
    result = ds.write_json("out").run(on_error="dead_letter")
    found = [json.loads(row["text"]) for row in rows_in()] if kind == "txt" else rows_in()
    assert found == [row for row in rows if row["id"] != long_at]
    (letter,) = rows_in("out/_dead_letters")
    assert (letter["file"], letter["position"]) == (f"scans.{kind}", long_at)
    assert "longer than 1,000,000 bytes" in letter["message"]
    assert len(letter["message"]) < 1_000
    assert str(result.report().balance()) == "read 5 = written 4 + failed 1 + filtered 0"
    with pytest.raises(StageError, match=f"row {long_at} of scans.{kind} .*longer than"):
        ds.write_json("again").run()
