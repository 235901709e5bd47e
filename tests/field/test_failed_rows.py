"""Limits on failed rows, and dead letters as files of either kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import PlanError, TooManyFailuresError
from headrace.testing import assert_balanced
from tests.field.running import headrace, rows_in, safe_rows, write_script

PICKY = """
    def picky(row):
        if row["id"] % 10 == 3:
            raise ValueError("no threes")
        return row
"""


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 10 == 3:
        raise ValueError("no threes")
    return row


def test_a_run_stops_at_its_limit_and_goes_on_with_a_higher_one() -> None:
    job = hr.range(3_000).map(picky).write_json("out", rows_per_part=100)
    with pytest.raises(TooManyFailuresError, match=r"max_failed_rows=5 allows: .* × ValueError in step .*no threes"):
        job.run(on_error="dead_letter", max_failed_rows=5)
    stayed = safe_rows()
    assert stayed > 0
    with pytest.raises(TooManyFailuresError, match="max_failed_ratio=0.05"):
        job.run(on_error="dead_letter", max_failed_ratio=0.05)
    # 10 % fail, but of the rows that are done at some moment it may be more
    job.run(on_error="dead_letter", max_failed_rows=300, max_failed_ratio=0.11)
    assert [row["id"] for row in rows_in()] == [i for i in range(3_000) if i % 10 != 3]
    assert [json.loads(json.dumps(letter["row"])) for letter in rows_in("out/_dead_letters")] == [
        {"id": i} for i in range(3, 3_000, 10)
    ]


def test_a_ratio_counts_at_the_end_of_a_small_run_too() -> None:
    job = hr.range(40).map(picky).write_json("out")
    with pytest.raises(TooManyFailuresError, match="4 of 40 rows failed, more than max_failed_ratio=0.05"):
        job.run(on_error="dead_letter", max_failed_ratio=0.05)
    assert job.run(on_error="dead_letter", max_failed_ratio=0.1).report().dead_letters == 4


def test_filtered_rows_are_rows_that_did_not_fail() -> None:
    job = hr.range(1_000).map(picky).filter(lambda row: row["id"] % 10 == 1).write_json("out")
    assert job.run(on_error="dead_letter", max_failed_ratio=0.1).failed == 100


def test_rows_written_with_nulls_count_as_failed() -> None:
    job = hr.range(100).add_column("double", lambda row: picky(row)["id"] * 2).write_json("out")
    with pytest.raises(TooManyFailuresError, match="10 of 100 rows failed.*10 written with nulls"):
        job.run(on_error="null", max_failed_rows=9)


def test_under_null_what_the_output_cannot_hold_is_a_dead_letter() -> None:
    mixed = hr.range(5).map(lambda row: {"x": "a word" if row["id"] == 3 else row["id"]}, isolation="thread")
    result = mixed.write_parquet("mixed").run(on_error="null")
    assert (result.rows_written, result.failed) == (4, 1)
    (letter,) = hr.read_json("mixed/_dead_letters").iter_rows()
    assert "column 'x' is string here ('a word')" in letter["message"]


@pytest.mark.parametrize(
    "wrong",
    [{"max_failed_rows": -1}, {"max_failed_ratio": 7}, {"max_failed_ratio": "1%"}, {"dead_letters_format": "x"}],
)
def test_wrong_limits_are_told_before_anything_runs(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(wrong))):
        hr.range(3).write_json("out").run(**wrong)


def test_dead_letters_may_be_parquet() -> None:
    hr.range(20).map(picky).write_json("out").run(on_error="dead_letter", dead_letters_format="parquet")
    letters = pq.read_table("out/_dead_letters").to_pylist()
    assert [(letter["row"], letter["position"], letter["attempt"]) for letter in letters] == [
        ('{"id": 3}', 3, 1),
        ('{"id": 13}', 13, 1),
    ]
    assert "in picky" in letters[0]["traceback"]


def test_the_command_line_and_pipeline_files_have_the_limits() -> None:
    write_script(PICKY, "picky.py")
    Path("in.jsonl").write_text("".join(json.dumps({"id": i}) + "\n" for i in range(50)))
    Path("pipeline.yaml").write_text(
        "source: {type: json, path: in.jsonl}\nsteps: [{map: {function: 'picky:picky'}}]\n"
        "sink: {type: json, path: out}\ndead_letters: {format: parquet}\nrun: {max_failed_rows: 4}\n"
    )
    ended = headrace("run", "pipeline.yaml", "-q")
    assert ended.code == 1
    assert "more than max_failed_rows=4 allows: 5 × ValueError" in ended.err
    assert headrace("run", "pipeline.yaml", "--max-failed-rows", "5", "--max-failed-ratio", "0.2", "-q").code == 3
    assert len(pq.read_table("out/_dead_letters")) == 5


class Scorer(hr.ModelHandler):
    """Fails the row whose text says so."""

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [hr.RowError("too dark") if row["fails"] == "infer" else len(row["fails"]) for row in batch]


def fails_in(stage: str) -> Any:
    def function(row: dict[str, Any]) -> dict[str, Any]:
        if row["fails"] == stage:
            raise ValueError(f"fails in {stage}")
        return row

    return function


STAGES = ("map", "flat_map", "filter", "map_batches", "infer", "postprocess", "write")


def test_every_stage_has_dead_letters_that_tell_all() -> None:
    lines = [json.dumps({"id": i, "fails": STAGES[i] if i < len(STAGES) else ""}) for i in range(20)]
    Path("in.jsonl").write_text("\n".join([*lines[:4], '{"id": 4, "fails": "infer"', *lines[4:]]) + "\n")

    def positive(answer: int) -> int:
        if answer == len("postprocess"):
            raise ValueError("fails in postprocess")
        return answer

    def each(table: Any) -> Any:
        if "map_batches" in table["fails"].to_pylist():
            raise ValueError("fails in map_batches")
        return table

    ds = hr.read_json("in.jsonl").map(fails_in("map"), name="map")
    ds = ds.flat_map(lambda row: [fails_in("flat_map")(row)], name="flat_map").filter(fails_in("filter"), name="filter")
    ds = ds.map_batches(each, batch_format="pyarrow", row_wise=True, name="map_batches")
    ds = ds.run_inference(Scorer(), postprocess=positive, name="infer", model_id_column=None)
    ds = ds.map(lambda row: row | {"id": "text" if row["fails"] == "write" else row["id"]}, name="odd")
    result = ds.write_parquet("out", name="write").run(on_error="dead_letter")
    assert_balanced(result)
    assert result.failed == len(STAGES) + 1

    letters = {letter["stage"].rpartition("/")[2]: letter for letter in rows_in("out/_dead_letters")}
    assert set(letters) == {*STAGES, "read_json"}
    for stage, letter in letters.items():
        assert letter["file"] == "in.jsonl"
        assert letter["position"] == (4 if stage == "read_json" else (i := STAGES.index(stage)) + (i >= 4)), stage
        assert letter["attempt"] == 1
        assert letter["message"], stage
        if stage not in ("read_json", "write"):
            assert letter["row"]["fails"] == stage
            assert stage == "infer" or "Traceback" in letter["traceback"]
    assert letters["infer"]["model_id"] == Scorer().model_id
    assert letters["write"]["row"]["id"] == "text"
    assert "column 'id' is string here ('text') and int64 in other rows" in letters["write"]["message"]
    assert letters["read_json"]["row"] == {"line": '{"id": 4, "fails": "infer"'}
