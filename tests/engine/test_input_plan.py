"""Plans whose input changes between two runs: what is run again, what is refused, and what the output holds then."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.commit.compaction import compact
from headrace.engine.commit.status import read_status
from headrace.errors import ResumeError, StageError
from headrace.sinks.json import JsonSink
from tests.stores import FlakyFileSystem, flaky_store


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    os.chdir(tmp_path)


def write(name: str, *ids: int) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(f'{{"id": {i}}}\n' for i in ids))


def ids(out: str = "out") -> list[int]:
    parts = sorted(Path(out).glob("part-*"))
    return [json.loads(line)["id"] for part in parts for line in part.read_text().splitlines()]


def halfway(pattern: str, stop_at: int) -> None:
    """Run until a row fails, so that the rows before it are finished and the others are not."""
    with pytest.raises(StageError):
        job(pattern, [stop_at]).run()


class Checking(hr.ModelHandler[None]):
    """Answers row by row, until one fails."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: None, inference_args: Any = None) -> list[Any]:
        return [hr.RowError(f"bad row {row['id']}") if row["id"] in self.bad else "good" for row in batch]


def job(pattern: str, bad: Sequence[int] = (), out: str = "out") -> hr.Job:
    """Every row is a batch, a commit and a part."""
    rows = hr.read_json(pattern).run_inference(Checking(set(bad)), version="1", max_batch_size=1, isolation="thread")
    return rows.select("id").write_json(out, rows_per_part=1)


def test_only_the_last_source_of_a_union_may_grow() -> None:
    write("a/1.jsonl", 1, 2)
    write("b/1.jsonl", 3, 4)

    def both() -> hr.RunResult:
        return hr.read_json("a/*").union(hr.read_json("b/*")).write_json("out").run()

    both()
    write("b/2.jsonl", 5)
    assert both().rows_written == 1
    assert ids() == [1, 2, 3, 4, 5]
    write("a/2.jsonl", 6)
    with pytest.raises(ResumeError, match=r"a/2\.jsonl is new; new files can be gone on with only in the source that"):
        both()
    assert ids() == [1, 2, 3, 4, 5]


def test_nothing_is_added_to_rows_that_are_mixed() -> None:
    write("1.jsonl", *range(20))

    def shuffled(**options: Any) -> hr.RunResult:
        return hr.read_json("*.jsonl").random_shuffle(seed=1).write_json("out").run(**options)

    shuffled()
    write("2.jsonl", 20)
    with pytest.raises(ResumeError, match=r"2\.jsonl is new; its rows are mixed"):
        shuffled()
    with pytest.raises(ResumeError, match="are mixed"):
        shuffled(on_change="continue_new_input")
    shuffled(on_change="restart")
    assert sorted(ids()) == list(range(21))


def test_a_limit_that_was_reached_stays_so_and_one_that_was_not_takes_new_rows() -> None:
    write("1.jsonl", 1, 2)

    def limited(rows: int) -> None:
        hr.read_json("*.jsonl").limit(rows).write_json(f"out{rows}").run()

    for rows in (2, 3):
        limited(rows)
    write("2.jsonl", 3, 4)
    for rows in (2, 3):
        limited(rows)
        assert ids(f"out{rows}") == [1, 2, 3][:rows]


def test_outputs_of_one_plan_that_know_different_inputs_each_get_what_they_lack() -> None:
    write("1.jsonl", 1, 2)
    job("*.jsonl", out="first").run()
    write("0.jsonl", 3)
    first = job("*.jsonl", out="first")
    hr.run(first, hr.Dataset(first.node.upstream).write_json("second", rows_per_part=1))
    assert ids("first") == ids("second") == [1, 2, 3]


def test_a_removed_file_is_named_and_its_rows_stay_if_that_was_asked_for() -> None:
    write("1.jsonl", 1, 2)
    write("2.jsonl", 3)
    job("*.jsonl").run()
    Path("1.jsonl").unlink()
    write("3.jsonl", 4)
    with pytest.raises(ResumeError, match=r"1\.jsonl was removed; 3\.jsonl is new. 3 rows are finished there"):
        job("*.jsonl").run()
    job("*.jsonl").run(on_change="continue_new_input")
    assert ids() == [1, 2, 3, 4]
    assert {piece.label: piece.state for piece in read_status("out").inputs} == {
        "1.jsonl and 1 more file": "given up",
        "3.jsonl": "done",
    }
    job("*.jsonl").run()
    assert ids() == [1, 2, 3, 4], "what was given up is not asked for again"


def test_small_files_that_were_read_halfway_as_one_cannot_be_gone_on_with() -> None:
    write("1.jsonl", 1, 2)
    write("2.jsonl", 3, 4)
    halfway("*.jsonl", stop_at=3)
    assert ids() == [1, 2]
    write("2.jsonl", 3, 4, 5)
    with pytest.raises(ResumeError, match=r"1\.jsonl and 1 more file are read as one, and had been read halfway"):
        job("*.jsonl").run(on_change="continue_new_input")
    job("*.jsonl").run(on_change="restart")
    assert ids() == [1, 2, 3, 4, 5]


def test_new_content_of_a_file_that_was_read_halfway_comes_behind_its_finished_rows() -> None:
    write("1.jsonl", 1, 2, 3)
    halfway("*.jsonl", stop_at=3)
    write("1.jsonl", 7, 8)
    job("*.jsonl").run(on_change="continue_new_input")
    assert ids() == [1, 2, 7, 8]
    write("2.jsonl", 9)
    job("*.jsonl").run()
    assert ids() == [1, 2, 7, 8, 9]


def test_a_run_that_dies_after_files_were_added_goes_on_too() -> None:
    write("1.jsonl", 1, 2)
    job("*.jsonl").run()
    write("2.jsonl", 3, 4, 5)
    halfway("*.jsonl", stop_at=5)
    assert ids() == [1, 2, 3, 4]
    assert read_status("out").state == "unfinished"
    write("3.jsonl", 6)
    job("*.jsonl").run()
    assert ids() == [1, 2, 3, 4, 5, 6]


def test_failed_rows_of_added_files_take_their_place_when_all_is_put_together() -> None:
    def run(bad: set[int], *, retry: bool = False) -> None:
        todo = job("*.jsonl", list(bad))
        todo.retry() if retry else todo.run(on_error="dead_letter")

    write("1.jsonl", 1, 2, 3)
    run({2})
    run(set(), retry=True)
    write("2.jsonl", 4, 5, 6)
    run({5})
    assert ids() == [1, 3, 2, 4, 6]
    run(set(), retry=True)
    assert ids() == [1, 3, 2, 4, 6, 5]
    compact(JsonSink("out"))
    assert ids() == [1, 2, 3, 4, 5, 6]
    write("3.jsonl", 7)
    run(set())
    assert ids() == [1, 2, 3, 4, 5, 6, 7]


def test_a_retry_does_not_mind_files_that_hold_no_failed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.extents.MAX_FILES_PER_SPLIT", 1)
    for i in range(3):
        write(f"{i}.jsonl", i)
    job("*.jsonl", [1]).run(on_error="dead_letter")
    Path("0.jsonl").unlink()
    write("2.jsonl", 20, 21)
    write("9.jsonl", 9)
    job("*.jsonl").retry()
    assert ids() == [0, 2, 1]
    write("1.jsonl", 100)
    with pytest.raises(ResumeError, match=r"0\.jsonl was removed"):
        job("*.jsonl").run()


def test_a_retry_whose_own_file_changed_is_refused() -> None:
    write("1.jsonl", 1, 2)
    job("*.jsonl", [2]).run(on_error="dead_letter")
    write("1.jsonl", 1, 2, 3)
    with pytest.raises(ResumeError, match=r"1\.jsonl changed"):
        job("*.jsonl").retry()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FlakyFileSystem]]:
    with flaky_store(monkeypatch) as store:
        yield store


def test_outputs_in_stores_grow_and_are_retried_likewise(store: type[FlakyFileSystem]) -> None:
    def rows() -> list[int]:
        names = sorted(name for name in store.store if name.startswith("/bucket/out/part-"))
        return [json.loads(line)["id"] for name in names for line in store().cat_file(name).splitlines()]

    def run(bad: set[int]) -> hr.Job:
        return job("*.jsonl", list(bad), out="flaky://bucket/out")

    write("1.jsonl", 1, 2, 3)
    run({2}).run(on_error="dead_letter")
    write("2.jsonl", 4)
    run(set()).run(on_error="dead_letter")
    assert rows() == [1, 3, 4]
    run(set()).retry()
    assert rows() == [1, 3, 4, 2]
    status = read_status("flaky://bucket/out")
    assert (status.state, status.rows, status.dead_letters) == ("finished", 4, 0)
    assert not [name for name in store.store if "/_dead_letters/" in name]
    write("1.jsonl", 5)
    with pytest.raises(ResumeError, match=r"1\.jsonl changed"):
        run(set()).run()
    run(set()).run(on_change="restart")
    assert rows() == [5, 4]
