"""Failed rows run again through what has been mended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ResumeError
from headrace.testing import assert_balanced
from tests.field.running import rows_in

ROWS = 60


def write_input(name: str = "in") -> None:
    Path(name).mkdir()
    for part in range(3):
        lines = [json.dumps({"id": part * 20 + i, "text": "ab"}) for i in range(20)]
        Path(name, f"{part}.jsonl").write_text("\n".join(lines) + "\n")


class Scorer(hr.ModelHandler):
    def __init__(self, bad: tuple[int, ...], log: str = "calls.log"):
        self.bad, self.log = bad, log

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        with open(self.log, "a") as log:
            log.write("".join(f"{row['id']}\n" for row in batch))
        return [hr.RowError("bad") if row["id"] in self.bad else row["id"] * 10 for row in batch]


def asked() -> list[int]:
    found = [int(line) for line in Path("calls.log").read_text().splitlines()]
    Path("calls.log").unlink()
    return sorted(found)


def test_only_failed_rows_are_run_again_and_only_their_files_are_read() -> None:
    write_input()
    ds = hr.read_json("in/*.jsonl")
    ds.run_inference(Scorer((3, 45))).write_json("out").run(on_error="dead_letter")
    assert asked() == list(range(ROWS))
    mended = ds.run_inference(Scorer((45,))).write_json("out")
    result = mended.retry()
    assert asked() == [3, 45]
    assert_balanced(result)
    assert (result.rows_written, result.failed, result.report().dead_letters) == (1, 1, 1)
    (letter,) = rows_in("out/_dead_letters")
    assert (letter["row"]["id"], letter["attempt"], letter["position"]) == (45, 2, 5)
    assert [row["id"] for row in rows_in()] == [*(i for i in range(ROWS) if i not in (3, 45)), 3]

    again = mended.run(on_error="dead_letter")
    assert again.rows_written == 0, "the job with the mended model is finished"
    last = ds.run_inference(Scorer(())).write_json("out")
    assert last.retry().rows_written == 1
    assert os.listdir("out/_dead_letters") == []
    assert sorted((row["id"], row["prediction"]) for row in rows_in()) == [(i, i * 10) for i in range(ROWS)]
    assert last.retry().rows_written == 0, "nothing is left to retry"


def test_the_input_of_failed_rows_has_to_be_as_it_was() -> None:
    write_input()

    def job(*bad: int) -> Any:
        return hr.read_json("in/*.jsonl").run_inference(Scorer(bad)).write_json("out")

    job(25).run(on_error="dead_letter")
    good = Path("in/1.jsonl").read_text()
    Path("in/1.jsonl").write_text(good.replace("ab", "xy"))
    with pytest.raises(ResumeError, match=r"input is not what it was: in/1\.jsonl changed.* without a retry"):
        job().retry()
    Path("in/1.jsonl").write_text(good)
    assert job().retry().rows_written == 1


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 7 == 3:
        raise ValueError("seven")
    return row


def test_each_of_several_outputs_has_its_failed_rows_run_again_for_itself() -> None:
    write_input()
    common = hr.read_json("in/*.jsonl").map(picky, name="common")
    one, two = common.write_json("one"), common.filter(lambda row: row["id"] != 10).write_json("two")
    hr.run(one, two, on_error="dead_letter")
    bad = [i for i in range(ROWS) if i % 7 == 3]
    assert len(rows_in("one/_dead_letters")) == len(bad), "each failure has one letter"
    assert not Path("two/_dead_letters").exists()

    fixed = hr.read_json("in/*.jsonl").map(lambda row: row, name="common")
    one, two = fixed.write_json("one"), fixed.filter(lambda row: row["id"] != 10).write_json("two")
    two.retry()
    assert sorted(row["id"] for row in rows_in("two")) == [i for i in range(ROWS) if i != 10]
    one.retry()
    assert sorted(row["id"] for row in rows_in("one")) == list(range(ROWS))
    assert os.listdir("one/_dead_letters") == []


def test_a_branch_that_did_not_fail_gets_no_row_twice() -> None:
    write_input()
    ds = hr.read_json("in/*.jsonl")
    jobs = ds.map(picky, name="branch").write_json("one"), ds.write_json("two")
    hr.run(*jobs, on_error="dead_letter")
    jobs = ds.map(lambda row: row, name="branch").write_json("one"), ds.write_json("two")
    hr.run(*jobs, on_error="dead_letter", retry_failed=True)
    for folder in ("one", "two"):
        assert sorted(row["id"] for row in rows_in(folder)) == list(range(ROWS))


def test_unreadable_lines_are_read_again_and_fail_again_while_the_file_is_as_it_was() -> None:
    Path("in.jsonl").write_text('{"id": 1}\n{"id": 2\n{"id": 3}\n')
    job = hr.read_json("in.jsonl").write_json("out")
    job.run(on_error="dead_letter")
    result = job.retry()
    assert (result.rows_written, result.failed) == (0, 1)
    assert [letter["attempt"] for letter in rows_in("out/_dead_letters")] == [2]


def double(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row | {"child": i} for i in range(2)]


def test_a_row_whose_sisters_are_written_already_stays_failed(caplog: pytest.LogCaptureFixture) -> None:
    def second_of_three(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 3 and row["child"] == 1:
            raise ValueError("second")
        return row

    def all_of_five(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5:
            raise ValueError("five")
        return row

    ds = hr.range(10)
    ds.map(all_of_five).flat_map(double).map(second_of_three).write_json("out").run(on_error="dead_letter")
    job = ds.map(lambda row: row).flat_map(double).map(lambda row: row).write_json("out")
    assert job.retry().rows_written == 2
    assert "1 row: other rows that were made of the same input row are written already" in caplog.text
    assert [letter["row"] for letter in rows_in("out/_dead_letters")] == [{"id": 3, "child": 1}]
    with pytest.raises(ResumeError, match="no failed row can be run again"):
        job.retry()


def test_rows_in_front_of_a_limit_stay_failed() -> None:
    hr.range(100).map(picky).limit(20).write_json("out").run(on_error="dead_letter")
    with pytest.raises(ResumeError, match="'limit' counts or mixes rows"):
        hr.range(100).map(lambda row: row).limit(20).write_json("out").retry()


def test_all_rows_may_fail_again() -> None:
    job = hr.range(20).map(picky).write_json("out")
    job.run(on_error="dead_letter")
    result = job.retry()
    assert (result.rows_written, result.failed) == (0, 3)
    assert job.run(on_error="dead_letter").rows_written == 0


def test_letters_stay_in_their_folder_and_their_format() -> None:
    ds = hr.range(30)
    ds.map(picky).write_json("out").run(on_error="dead_letter", dead_letters="failed", dead_letters_format="parquet")
    job = ds.map(lambda row: picky(row) if row["id"] > 15 else row).write_json("out")
    assert job.retry().rows_written == 2
    assert [letter["position"] for letter in rows_in("failed")] == [17, 24]
    assert [path.suffix for path in Path("failed").iterdir()] == [".parquet"]
    assert not Path("out/_dead_letters").exists()
    assert ds.write_json("out").retry().rows_written == 2
    assert list(Path("failed").iterdir()) == []


def test_an_output_that_is_no_folder_may_stand_beside_one_that_keeps_the_letters() -> None:
    from headrace.testing import CollectingSink

    common, sink = hr.range(20).map(picky), CollectingSink()
    hr.run(common.write_json("out"), common.write(sink), on_error="dead_letter")
    assert len(rows_in("out/_dead_letters")) == 3
    assert len(sink.rows()) == 17


def test_files_that_came_between_retries_stand_in_order_after_a_compaction() -> None:
    Path("in").mkdir()

    def write(part: int) -> None:
        Path(f"in/{part}.jsonl").write_text("".join(json.dumps({"id": 20 * part + i}) + "\n" for i in range(20)))

    def job(*bad: int) -> Any:
        return hr.read_json("in/*.jsonl").run_inference(Scorer(bad)).write_json("out", rows_per_part=7)

    write(0)
    job(3, 15).run(on_error="dead_letter")
    job(15).retry()
    write(1)
    job(15).run(on_error="dead_letter")
    assert job(15, 25).retry().failed == 1
    write(2)
    job(15, 25).run(on_error="dead_letter")
    assert job().retry().rows_written == 1
    job().compact()
    assert [row["id"] for row in rows_in()] == list(range(60))


def test_a_row_that_failed_between_retries_goes_to_its_place() -> None:
    Path("in").mkdir()

    def write(part: int) -> None:
        Path(f"in/{part}.jsonl").write_text("".join(json.dumps({"id": 20 * part + i}) + "\n" for i in range(20)))

    def job(*bad: int) -> Any:
        scorer = Scorer(bad)
        return hr.read_json("in/*.jsonl").run_inference(scorer, version="1").write_json("out", rows_per_part=7)

    write(0)
    job(3, 15).run(on_error="dead_letter")
    job().retry()
    write(1)
    job(25, 39).run(on_error="dead_letter")
    job(39).retry()
    job().compact()
    job().retry()
    job().compact()
    assert [row["id"] for row in rows_in()] == list(range(40))
