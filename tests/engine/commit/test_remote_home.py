"""Outputs in a store: gone on with from anywhere, by one writer at a time, whatever the store does."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.compaction import compact
from headrace.engine.commit.remote_home import RemoteHome
from headrace.engine.commit.status import read_status
from headrace.errors import HeadraceError, OutputExistsError, ResumeError, SinkError
from headrace.records.block import Block
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.store import Store
from tests.engine.commit.jobs import Job, committer_for, everything, work_left
from tests.stores import FlakyFileSystem, flaky_store, objects

OUT = "flaky://bucket/out"
JOB = Job(fates=((1,) * 40, (2, 0, -1, 1) * 10, (1, 3) * 15), block_rows=7, late_column=True)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FlakyFileSystem]]:
    with flaky_store(monkeypatch) as store:
        yield store


def committer(job: Job = JOB, **options: object) -> Committer:
    return committer_for(OUT, job, rows_per_part=25, **options)


def put_some(committer: Committer, last: int, job: Job = JOB, seed: int = 0, *, first: int = 0) -> None:
    """Put the blocks `first` to `last` of what the committer lacked when it was opened, in a random order."""
    for block in work_left(committer, job, random.Random(seed))[first:last]:
        committer.put(block)


def waiting_block() -> Block:
    """Rows that wait for two units before theirs."""
    return JOB.process(next(block for block in JOB.source_blocks() if block.unit.split == 2))


def run_to_end(committer: Committer, job: Job = JOB, seed: int = 0) -> None:
    committer.open()
    put_some(committer, 10_000, job, seed)
    committer.finish()


def rows(out: str = OUT) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for name in objects(out):
        if name.startswith("part-"):
            with FlakyFileSystem().open(f"{out}/{name}", "rb") as file:
                table = pq.read_table(file)
            found += zip(table["id"].to_pylist(), table["child"].to_pylist(), strict=True)
    return found


def failed(out: str = OUT) -> list[int]:
    letters = [name for name in objects(out) if name.startswith("_dead_letters/failures-")]
    lines = [line for name in letters for line in FlakyFileSystem().cat_file(f"{out}/{name}").splitlines()]
    return sorted(json.loads(line)["row"]["id"] for line in lines)


def check_whole(out: str = OUT, job: Job = JOB) -> None:
    assert rows(out) == job.rows()
    assert failed(out) == job.failed()
    hidden = [name for name in objects(out) if name.startswith(".headrace/")]
    assert all(name.startswith(".headrace/log/") for name in hidden), "work that is done leaves nothing but its log"


def test_a_run_leaves_parts_letters_and_a_short_log(store: type[FlakyFileSystem]) -> None:
    run_to_end(committer())
    check_whole()
    log = [name for name in objects(OUT) if name.startswith(".headrace/log/")]
    assert [name.rsplit(".", 1)[1] for name in log] == ["json", "sqlite"], "the first entry and the snapshot"


def test_a_finished_job_is_found_finished_and_nothing_is_written(store: type[FlakyFileSystem]) -> None:
    run_to_end(committer())
    store.counts.clear()
    again = committer()
    again.open()
    assert again.done.everything
    again.finish()
    assert not {"put_file", "pipe_file", "cp_file", "rm_file"} & set(store.counts)


def test_what_a_stopped_run_finished_is_not_made_again_on_another_machine(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    put_some(first, 12)
    first.abort()
    saved = first.statistics().rows_saved
    assert saved > 0
    second = committer()
    second.open()
    assert second.done.rows == saved
    assert second.statistics().rows_before == saved
    put_some(second, 10_000)
    second.finish()
    check_whole()


def test_status_looks_on_without_disturbing(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    put_some(first, 8)
    first.flush()
    assert first._mirror is not None
    first._mirror.sync()

    def gone(request: str, path: str) -> str:
        if request == "cat_file" and "/segments/" in path:
            store.store.pop(store._strip_protocol(path), None)  # just now, by the run at work
        return ""

    safe = first.statistics().rows_saved
    status = read_status(OUT)
    assert status.state in ("unfinished", "never ran")
    assert status.rows + status.waiting_rows <= safe
    store.faults = gone
    assert read_status(OUT).rows == status.rows
    store.faults = None
    put_some(first, 10_000, first=8)
    first.finish()
    check_whole()
    assert (read_status(OUT).state, read_status(OUT).rows) == ("finished", len(JOB.rows()))


def test_segments_are_copied_while_a_run_goes_on(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    first.put(waiting_block())
    first.flush()
    assert first._mirror is not None
    first._mirror.sync()
    second = committer()  # the first machine is gone: nobody told
    second.open()
    assert second.done.rows > 0
    put_some(second, 10_000)
    second.finish()
    check_whole()
    first.abort()


def test_the_later_run_wins_and_the_earlier_one_is_told(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    put_some(first, 3)
    second = committer()
    second.open()
    with pytest.raises(SinkError, match=r"another run \(.*process \d+.*\) has begun to write to flaky://bucket/out"):
        put_some(first, 10_000, first=3)
        first.finish()
    put_some(second, 10_000)
    second.finish()
    first.abort()
    run_to_end(committer())  # finds the job finished, and removes what the loser left
    check_whole()


def test_a_run_that_slept_through_many_snapshots_still_loses(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.commit.remote_log.ENTRIES_BETWEEN_SNAPSHOTS", 2)
    first = committer()
    first.open()
    for _ in range(3):
        other = committer()
        other.open()
        put_some(other, 8)
        other.abort()
    run_to_end(committer())
    with pytest.raises(SinkError, match="another run"):
        put_some(first, 10_000)
        first.finish()
    first.abort()
    run_to_end(committer())
    check_whole()


def test_two_runs_that_begin_at_the_same_moment(store: type[FlakyFileSystem]) -> None:
    first, second = RemoteHome(OUT), RemoteHome(OUT)
    for one in (first, second):
        one.inspect(if_exists="resume")
    first.claim()
    with pytest.raises(SinkError, match="another run"):
        second.claim()
    first.release()
    second.release()


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_busy_store_is_asked_again(store: type[FlakyFileSystem], fault: str, times: int) -> None:
    asked: Counter[tuple[str, str]] = Counter()

    def faults(request: str, path: str) -> str:
        asked[request, path] += 1
        return fault if asked[request, path] % (times + 1) > 0 else ""

    Store(OUT).names()  # before its first answer a store is asked twice only
    store.faults = faults
    first = committer()
    first.open()
    put_some(first, 10)
    first.abort()
    run_to_end(committer(), seed=1)
    store.faults = None
    check_whole()


def test_a_store_that_stays_away_ends_the_run_with_one_error_and_loses_nothing(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    put_some(first, 8)
    store.faults = lambda request, _path: "before" if request in ("put_file", "pipe_file", "cp_file") else ""
    with pytest.raises(
        SinkError, match=r"cannot write flaky://bucket/out/\.headrace/.*reduce your request rate.*goes on from there"
    ):
        put_some(first, 10_000, first=8)
        first.finish()
    first.abort()
    store.faults = None
    run_to_end(committer())
    check_whole()


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_dies_at_any_request(store: type[FlakyFileSystem], seed: int) -> None:
    """From some request on nothing reaches the store any more, as when a machine is gone; others read all the while."""
    rng = random.Random(seed)
    for attempt in range(6):
        last = store.counts.total() + rng.randint(3, 60)
        store.faults = lambda _request, _path, last=last: "before" if store.counts.total() > last else ""
        one = committer()
        try:
            one.open()
            put_some(one, rng.randint(3, 20), seed=attempt)
            one.flush()
            one._mirror.sync()  # type: ignore[union-attr]
            one.finish()
        except (HeadraceError, AssertionError):
            pass
        one.abort()
        store.faults = None
        shown = rows()
        assert shown == JOB.rows()[: len(shown)], "a reader sees rows once, in order, from the first on"
    run_to_end(committer(), seed=99)
    check_whole()


def test_what_restoring_asks_does_not_grow_with_what_is_done(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.engine.commit.remote_log.ENTRIES_BETWEEN_SNAPSHOTS", 10)

    def requests_to_restore(parts: int) -> int:
        out = f"flaky://bucket/many-{parts}"
        job = Job(fates=((1,) * 10 * parts, (1,) * 10))
        one = committer_for(out, job, rows_per_part=10)
        one.open()
        for block in work_left(one, job, random.Random(0)):
            if block.unit.split == 0:
                one.put(block)
        one.abort()
        store.counts.clear()
        again = committer_for(out, job, rows_per_part=10)
        again.open()
        asked = store.counts.total()
        assert again.done.rows == 10 * parts
        again.abort()
        return asked

    # Some 15 for the listings, one for each entry since the snapshot, and one for each segment file.
    assert max(requests_to_restore(parts) for parts in (20, 200, 400)) <= 40


def test_another_job_is_refused_and_overwriting_begins_afresh(store: type[FlakyFileSystem]) -> None:
    run_to_end(committer())
    other = Job(fates=((1,) * 7,))
    identity = type(committer()._identity)({"input": "another"})
    with pytest.raises(ResumeError, match="was begun by another job"):
        committer(other, identity=identity).open()
    with pytest.raises(OutputExistsError, match='if_exists="fail"'):
        committer(if_exists="fail").open()
    run_to_end(committer(other, identity=identity, if_exists="overwrite"), other)
    check_whole(job=other)


def test_a_late_row_of_a_job_that_was_overwritten_does_not_come_back(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    first.put(waiting_block())
    first.flush()
    other = Job(fates=((1,) * 7,))
    second = committer(other, if_exists="overwrite")
    second.open()
    with pytest.raises(SinkError, match="another run"):
        first._mirror.sync()  # type: ignore[union-attr]
    first.abort()
    put_some(second, 10_000, other)
    second.finish()
    check_whole(job=other)


def test_files_of_others_and_changed_parts_are_refused(store: type[FlakyFileSystem]) -> None:
    store().pipe_file(f"{OUT}/thesis.txt", b"not ours")
    with pytest.raises(OutputExistsError, match=r"thesis\.txt"):
        committer().open()
    store().rm_file(f"{OUT}/thesis.txt")
    first = committer()
    first.open()
    put_some(first, 10_000)
    first.finish()
    store().pipe_file(f"{OUT}/part-00001.parquet", b"cut")
    with pytest.raises(ResumeError, match=r"part-00001\.parquet was finished with .* bytes and has 3 bytes now"):
        committer().open()


def test_nothing_finished_leaves_an_empty_output(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    first.abort()
    assert [name for name in objects(OUT) if not name.startswith(".headrace/log/")] == []
    run_to_end(committer(if_exists="fail"))
    check_whole()


def test_a_damaged_log_is_told(store: type[FlakyFileSystem]) -> None:
    first = committer()
    first.open()
    put_some(first, 12)
    first.abort()
    entry = next(name for name in objects(OUT) if name.endswith(".json"))
    store().pipe_file(f"{OUT}/{entry}", b"{}")
    with pytest.raises(ResumeError, match=r"is damaged .*--overwrite"):
        committer().open()


def test_dead_letters_elsewhere(store: type[FlakyFileSystem], tmp_path: Path) -> None:
    run_to_end(committer(dead_letters=str(tmp_path / "letters")))
    lines = [line for path in sorted((tmp_path / "letters").glob("*")) for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["row"]["id"] for line in lines) == JOB.failed()
    run_to_end(committer_for("flaky://bucket/b", JOB, dead_letters="flaky://another/letters"))
    found = [FlakyFileSystem().cat_file(f"flaky://another/letters/{n}") for n in objects("flaky://another/letters")]
    assert sorted(json.loads(line)["row"]["id"] for data in found for line in data.splitlines()) == JOB.failed()


def test_nothing_is_left_on_this_machine(
    store: type[FlakyFileSystem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = committer()
    first.open()
    put_some(first, 8)
    first.abort()
    with pytest.raises(OutputExistsError):
        committer(if_exists="fail").open()
    run_to_end(committer())
    assert list(tmp_path.iterdir()) == []


def test_a_local_output_that_was_copied_to_another_place(tmp_path: Path) -> None:
    there, here = str(tmp_path / "there"), str(tmp_path / "moved" / "here")
    first = committer_for(there, JOB, sink=ParquetSink(there), rows_per_part=25)
    first.open()
    put_some(first, 12)
    first.abort()
    shutil.copytree(there, here)
    shutil.rmtree(there)
    again = committer_for(here, JOB, sink=ParquetSink(here), rows_per_part=25)
    again.open()
    assert again.done.rows == first.statistics().rows_saved
    put_some(again, 10_000)
    again.finish()
    assert read_status(here).rows == len(JOB.rows())


@pytest.mark.parametrize("seed", range(3))
def test_a_retry_whose_client_dies_at_any_request(store: type[FlakyFileSystem], seed: int) -> None:
    run_to_end(committer())
    then = JOB.retried(2, 0, 1)
    whole = JOB.rows() + [row for row in then.rows() if row not in set(JOB.rows())]
    rng = random.Random(seed)
    for attempt in range(4):
        last = store.counts.total() + rng.randint(3, 40)
        store.faults = lambda _request, _path, last=last: "before" if store.counts.total() > last else ""
        one = committer(then, choose=everything)
        try:
            one.open()
            put_some(one, rng.randint(1, 8), then, seed=attempt)
            one.flush()
            one._mirror.sync()  # type: ignore[union-attr]
            one.finish()
        except (HeadraceError, AssertionError):
            pass
        one.abort()
        store.faults = None
        assert rows() == whole[: len(rows())]
    run_to_end(committer(then, choose=everything), then, seed=99)
    assert rows() == whole
    assert failed() == []


def test_compaction_in_a_store(store: type[FlakyFileSystem]) -> None:
    run_to_end(committer())
    mended = JOB.retried(1)
    run_to_end(committer(mended, choose=everything), mended)
    parts = len([name for name in objects(OUT) if name.startswith("part-")])
    done = compact(ParquetSink(OUT), rows_per_part=1_000)
    assert (done.rows, done.parts_before, done.parts) == (len(mended.rows()), parts, 1)
    check_whole(job=mended)
    again = committer(mended)
    again.open()
    assert again.done.everything
    again.finish()


@pytest.mark.parametrize("seed", range(6))
def test_a_compaction_whose_client_dies_at_any_request(store: type[FlakyFileSystem], seed: int) -> None:
    run_to_end(committer())
    rng = random.Random(seed)
    for _ in range(4):
        last = store.counts.total() + rng.randint(1, 45)
        store.faults = lambda _request, _path, last=last: "before" if store.counts.total() > last else ""
        with suppress(HeadraceError):
            compact(ParquetSink(OUT), rows_per_part=rng.choice([10, 40, 1_000]))
        store.faults = None
        if rng.random() < 0.5:  # the job itself, too, makes up for what is missing
            again = committer()
            again.open()
            again.finish()
            assert rows() == JOB.rows()
    compact(ParquetSink(OUT), rows_per_part=1_000)
    check_whole()
