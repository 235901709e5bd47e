from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.entries import SplitRecord
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.journal import Journal
from headrace.engine.commit.segments import Segments
from headrace.engine.commit.status import read_status
from headrace.errors import BalanceError, OutputExistsError, ResumeError, SinkError
from headrace.records.block import Block, Unit, dense_block
from headrace.records.position import END
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from tests.engine.commit.jobs import Job, committer_for, read_failures, read_rows, visible, work_left

SMALL = Job(fates=((1,) * 25, (2, 0, -1, 1) * 5, ()))


def run_to_end(committer: Committer, job: Job, seed: int = 0) -> None:
    committer.open()
    for block in work_left(committer, job, random.Random(seed)):
        committer.put(block)
    committer.finish()


def whole_unit(batch: pa.RecordBatch, split: int = 0) -> Block:
    return replace(dense_block(batch, split=split, first=0), end=END)


@pytest.mark.parametrize("sink", [ParquetSink, CsvSink, JsonSink])
def test_rows_come_out_once_in_order_whatever_the_order_of_arrival(tmp_path: Path, sink: type) -> None:
    out = str(tmp_path / "out")
    committer = committer_for(out, SMALL, sink=sink(out))
    run_to_end(committer, SMALL)
    assert read_rows(out) == SMALL.rows()
    assert sorted(read_failures(out)) == SMALL.failed()
    statistics = committer.statistics()
    assert (statistics.rows, statistics.dead_letters) == (len(SMALL.rows()), len(SMALL.failed()))
    assert statistics.nbytes == sum(os.path.getsize(p) for p in visible(out))
    assert sorted(os.listdir(os.path.join(out, ".headrace"))) == ["journal.sqlite", "lock"]


fates = st.lists(st.sampled_from([1, 1, 1, 0, 2, 3, -1]), max_size=30).map(tuple)


@settings(max_examples=40, deadline=None)
@given(
    units=st.lists(fates, min_size=1, max_size=4).map(tuple),
    block_rows=st.integers(1, 12),
    rows_per_part=st.sampled_from([None, 1, 7, 1000]),
    late_column=st.booleans(),
    kills=st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_any_history_of_kills_ends_with_every_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    units: tuple[tuple[int, ...], ...],
    block_rows: int,
    rows_per_part: int | None,
    late_column: bool,
    kills: list[tuple[int, bool, bool]],
    seed: int,
) -> None:
    out = str(tmp_path_factory.mktemp("history") / "out")
    job = Job(fates=units, block_rows=block_rows, late_column=late_column)
    rng = random.Random(seed)
    now = 0.0

    def opened() -> Committer:
        committer = committer_for(out, job, rows_per_part=rows_per_part, clock=lambda: now)
        committer.open()
        return committer

    for puts, gracefully, waits in kills:
        committer = opened()
        for block in work_left(committer, job, rng)[:puts]:
            committer.put(block)
        if waits:
            now += 60.0
            committer.flush()
        rows = committer.done.rows
        if gracefully:
            committer.abort()
        else:
            committer._close()  # what a killed process leaves: nothing is saved on the way out
        seen = read_rows(out)
        assert seen == job.rows()[: len(seen)]
        assert rows <= len(job.rows())
    committer = opened()
    for block in work_left(committer, job, rng):
        committer.put(block)
    committer.finish()
    assert read_rows(out) == job.rows()
    assert sorted(read_failures(out)) == job.failed()
    assert committer.statistics().rows == len(job.rows())
    if late_column and any(f > 0 for unit in units[1:] for f in unit):
        assert {tuple(pq.read_schema(path).names) for path in visible(out)} == {("id", "child", "note")}


def test_parts_have_as_many_rows_as_asked_for(tmp_path: Path) -> None:
    job = Job(fates=((1,) * 100,))
    run_to_end(committer_for(str(tmp_path), job, rows_per_part=30), job)
    assert [pq.read_metadata(p).num_rows for p in visible(str(tmp_path))] == [30, 30, 30, 10]


def test_parts_are_cut_by_bytes(tmp_path: Path) -> None:
    job = Job(fates=((1,) * 10_000,), block_rows=1_000)
    run_to_end(committer_for(str(tmp_path), job, target_part_bytes=20_000), job)
    sizes = [os.path.getsize(path) for path in visible(str(tmp_path))]
    assert len(sizes) > 2
    assert all(16_000 <= size <= 24_000 for size in sizes[:-1])


def test_children_of_one_row_stay_in_one_part(tmp_path: Path) -> None:
    job = Job(fates=((7,) * 4,), block_rows=4)
    run_to_end(committer_for(str(tmp_path), job, rows_per_part=5), job)
    assert [pq.read_metadata(p).num_rows for p in visible(str(tmp_path))] == [7, 7, 7, 7]


def test_rows_that_wait_survive_a_kill_and_are_not_asked_for_again(tmp_path: Path) -> None:
    now = 0.0
    out = str(tmp_path / "out")
    committer = committer_for(out, SMALL, clock=lambda: now)
    committer.open()
    blocks = [SMALL.process(b) for b in SMALL.source_blocks()]
    committer.put(blocks[1])
    now = 5.0
    committer.flush()
    committer._close()
    assert visible(out) == []
    status = read_status(out)
    assert (status.state, status.rows, status.waiting_rows) == ("unfinished", 0, blocks[1].num_rows)

    again = committer_for(out, SMALL)
    again.open()
    assert again.done.rows == again.statistics().rows_before == blocks[1].num_rows
    assert [(p.start, p.end) for p in again.done.missing(SMALL.source_blocks()[1])] == []
    assert not again.done.has_unit(Unit(0))
    again.abort()


def test_a_finished_job_has_nothing_to_do(tmp_path: Path) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    before = {path: os.stat(path).st_mtime_ns for path in visible(str(tmp_path))}
    again = committer_for(str(tmp_path), SMALL)
    again.open()
    assert all(again.done.has_unit(unit) for unit in SMALL.units)
    assert work_left(again, SMALL, random.Random(0)) == []
    again.finish()
    assert {path: os.stat(path).st_mtime_ns for path in visible(str(tmp_path))} == before
    assert again.statistics().rows == again.statistics().rows_before == len(SMALL.rows())
    assert read_status(str(tmp_path)).state == "finished"


def test_another_job_is_refused_by_name(tmp_path: Path) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    other = committer_for(str(tmp_path), SMALL, identity=JobIdentity({"input": "a", "step map_1": "new"}))
    with pytest.raises(ResumeError, match="step map_1 has changed.*40 finished rows.*--overwrite"):
        other.open()
    with pytest.raises(ResumeError, match="output format has changed"):
        committer_for(str(tmp_path), SMALL, sink=CsvSink(str(tmp_path))).open()


def test_what_cannot_be_fingerprinted_is_not_resumed(tmp_path: Path) -> None:
    unknown = JobIdentity({"input": "a"}, {"step map_1": "it closes over a database connection"})
    run_to_end(committer_for(str(tmp_path), SMALL, identity=unknown), SMALL)
    with pytest.raises(ResumeError, match=r"step map_1: it closes over a database connection.*version="):
        committer_for(str(tmp_path), SMALL, identity=unknown).open()


def test_a_job_that_finished_nothing_may_be_changed(tmp_path: Path) -> None:
    first = committer_for(str(tmp_path), SMALL)
    first.open()
    first.abort()
    changed = committer_for(str(tmp_path), SMALL, identity=JobIdentity({"input": "b"}))
    run_to_end(changed, SMALL)
    assert read_rows(str(tmp_path)) == SMALL.rows()


def test_overwrite_replaces_what_headrace_wrote(tmp_path: Path) -> None:
    big = Job(fates=((1, -1) * 50,))
    run_to_end(committer_for(str(tmp_path), big, rows_per_part=5), big)
    run_to_end(committer_for(str(tmp_path), SMALL, identity=JobIdentity({"x": "y"}), if_exists="overwrite"), SMALL)
    assert read_rows(str(tmp_path)) == SMALL.rows()
    assert sorted(read_failures(str(tmp_path))) == SMALL.failed()


@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "fail"])
def test_files_of_others_are_left_alone(tmp_path: Path, if_exists: str) -> None:
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(OutputExistsError, match=r"thesis\.docx"):
        committer_for(str(tmp_path), SMALL, if_exists=if_exists).open()
    assert os.listdir(tmp_path) == ["thesis.docx"]


def test_parts_without_a_journal_are_not_resumed(tmp_path: Path) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    shutil.rmtree(tmp_path / ".headrace")
    with pytest.raises(OutputExistsError, match="--overwrite"):
        committer_for(str(tmp_path), SMALL).open()


def test_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(SinkError, match="is a file, but the output is a folder"):
        committer_for(str(tmp_path / "out"), SMALL).open()


def test_dead_letters_of_another_job_are_left_alone(tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    run_to_end(committer_for(str(tmp_path / "a"), SMALL, dead_letters=str(letters)), SMALL)
    with pytest.raises(OutputExistsError, match="dead letters of another job"):
        committer_for(str(tmp_path / "b"), SMALL, dead_letters=str(letters)).open()


def test_two_runs_do_not_write_to_one_output(tmp_path: Path) -> None:
    first = committer_for(str(tmp_path), SMALL)
    first.open()
    with pytest.raises(SinkError, match="another run is writing"):
        committer_for(str(tmp_path), SMALL).open()
    first.abort()
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_damaged_part_is_noticed(tmp_path: Path, damage: str) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL, rows_per_part=10), SMALL)
    part = tmp_path / "part-00001.parquet"
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-10])
    else:
        part.unlink()
    with pytest.raises(ResumeError, match=r"part-00001\.parquet.*(missing|bytes now).*--overwrite"):
        committer_for(str(tmp_path), SMALL).open()


def test_a_damaged_journal_is_noticed(tmp_path: Path) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    (tmp_path / ".headrace/journal.sqlite").write_bytes(b"nonsense" * 1000)
    with pytest.raises(ResumeError, match=r"journal\.sqlite is damaged.*--overwrite"):
        committer_for(str(tmp_path), SMALL).open()
    run_to_end(committer_for(str(tmp_path), SMALL, if_exists="overwrite"), SMALL)


def test_an_output_without_rows_has_one_part_with_its_columns(tmp_path: Path) -> None:
    job = Job(fates=((0, 0, 0), ()))
    run_to_end(committer_for(str(tmp_path), job), job)
    assert pq.read_table(tmp_path / "part-00000.parquet").schema.names == ["id", "child"]


def test_no_input_at_all(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), Job(fates=()))
    committer.open()
    committer.finish(schema=pa.schema({"id": pa.int64()}))
    assert pq.read_table(tmp_path / "part-00000.parquet").schema == pa.schema({"id": pa.int64()})
    again = committer_for(str(tmp_path), Job(fates=()))
    again.open()
    again.finish()


def test_types_that_widen_on_the_way_hold_for_all_parts(tmp_path: Path) -> None:
    batches = [{"x": pa.nulls(2)}, {"x": pa.array([1, 2])}, {"x": pa.array([0.5, None])}]
    committer = Committer(ParquetSink(str(tmp_path)), identity=JobIdentity(), units=[Unit(i) for i in range(3)])
    committer.open()
    for i, columns in enumerate(batches):
        committer.put(whole_unit(pa.record_batch(columns), split=i))
    committer.finish()
    assert len(visible(str(tmp_path))) == 3
    assert {str(pq.read_schema(p).field("x").type) for p in visible(str(tmp_path))} == {"double"}
    assert pq.read_table(tmp_path)["x"].to_pylist() == [None, None, 1.0, 2.0, 0.5, None]
    assert committer.statistics().nbytes == sum(os.path.getsize(p) for p in visible(str(tmp_path)))


def test_types_that_quarrel_are_an_error_with_both_names(tmp_path: Path) -> None:
    committer = Committer(ParquetSink(str(tmp_path)), identity=JobIdentity(), units=[Unit(0), Unit(1)])
    committer.open()
    committer.put(whole_unit(pa.record_batch({"x": [1]})))
    with pytest.raises(SinkError, match="column 'x' is int64 in earlier rows and string"):
        committer.put(whole_unit(pa.record_batch({"x": ["a"]}), split=1))
    committer.abort()
    assert visible(str(tmp_path)) == []


def test_missing_and_doubled_ranges_are_our_bug_and_say_so(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), SMALL)
    committer.open()
    block = SMALL.process(SMALL.source_blocks()[0])
    committer.put(block)
    with pytest.raises(BalanceError, match="split 0 from row 10"):
        committer.finish()
    with pytest.raises(BalanceError, match="delivered twice"):
        committer.put(block)
    committer.abort()
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    assert read_rows(str(tmp_path)) == SMALL.rows()


class FullDisk(ParquetSink):
    """A disk that is full from the second part on."""

    def open_part(self, number: int, schema: pa.Schema, staging: str):
        if number == 1:
            raise OSError(28, "No space left on device")
        return super().open_part(number, schema, staging)


def test_a_full_disk_stops_the_run_and_keeps_what_is_whole(tmp_path: Path) -> None:
    job = Job(fates=((1,) * 100,))
    out = str(tmp_path)

    def fill() -> None:
        run_to_end(Committer(FullDisk(out), identity=JobIdentity({"i": "1"}), units=job.units, rows_per_part=20), job)

    committer = Committer(FullDisk(out), identity=JobIdentity({"i": "1"}), units=job.units, rows_per_part=20)
    committer.open()
    with pytest.raises(SinkError, match=r"the disk is full.*run the same command again"):
        for block in work_left(committer, job, random.Random(0)):
            committer.put(block)
        committer.finish()
    committer.abort()
    assert read_rows(out) == job.rows()[:20]
    with pytest.raises(SinkError, match="the disk is full"):
        fill()


def test_memory_is_bounded_when_rows_wait(tmp_path: Path) -> None:
    units = [Unit(0), Unit(1)]
    committer = Committer(
        ParquetSink(str(tmp_path)), identity=JobIdentity(), units=units, memory_budget_bytes=200_000, clock=lambda: 0.0
    )
    committer.open()
    for i in range(50):
        batch = pa.record_batch({"x": np.arange(2_000) + 2_000 * i})
        block = dense_block(batch, split=1, first=2_000 * i)
        committer.put(replace(block, end=END) if i == 49 else block)
        assert committer._holdings.held_bytes <= 200_000
    committer.put(whole_unit(pa.record_batch({"x": [-1]})))
    committer.finish()
    assert pq.read_table(tmp_path)["x"].to_pylist() == [-1, *range(100_000)]


def test_many_threads_may_put(tmp_path: Path) -> None:
    job = Job(fates=((1,) * 200, (2,) * 200, (0, 1, -1) * 60))
    committer = committer_for(str(tmp_path), job, rows_per_part=50)
    committer.open()
    blocks = work_left(committer, job, random.Random(3))
    threads = [threading.Thread(target=lambda i=i: [committer.put(b) for b in blocks[i::4]]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    committer.finish()
    assert read_rows(str(tmp_path)) == job.rows()


def test_splits_are_kept_for_the_next_run(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), SMALL)
    committer.open()
    committer.record_splits([SplitRecord(0, "a.csv", "v1", "digest"), SplitRecord(1, "b.csv", "v1")])
    committer.record_splits([SplitRecord(0, "a.csv", "v1")])
    committer.put(SMALL.process(SMALL.source_blocks()[0]))
    committer.abort()
    again = committer_for(str(tmp_path), SMALL)
    again.open()
    assert again.splits() == [SplitRecord(0, "a.csv", "v1", "digest"), SplitRecord(1, "b.csv", "v1")]
    again.abort()


def test_remote_folder(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.rm("/bucket", recursive=True) if fs.exists("/bucket") else None
    run_to_end(committer_for("memory://bucket/out", SMALL), SMALL)
    with fs.open("/bucket/out/part-00000.parquet") as file:
        table = pq.read_table(file)
    assert list(zip(table["id"].to_pylist(), table["child"].to_pylist(), strict=True)) == SMALL.rows()
    letters = fs.cat_file("/bucket/out/_dead_letters/failures-00000.jsonl").splitlines()
    assert len(letters) == len(SMALL.failed())
    again = committer_for("memory://bucket/out", SMALL)
    again.open()
    assert again.done.everything
    again.abort()
    run_to_end(committer_for("memory://bucket/out", SMALL, if_exists="overwrite"), SMALL)


def test_failures_need_a_folder(tmp_path: Path) -> None:
    class Nowhere(JsonSink):
        folder = None  # type: ignore[assignment]

    committer = committer_for("", SMALL, sink=Nowhere(str(tmp_path)))
    committer.open()
    with pytest.raises(SinkError, match="dead_letters="):
        committer.put(SMALL.process(SMALL.source_blocks()[3]))
    committer.abort()


def test_a_dead_letter_says_all_it_knows(tmp_path: Path) -> None:
    run_to_end(committer_for(str(tmp_path), SMALL), SMALL)
    line = (tmp_path / "_dead_letters/failures-00000.jsonl").read_text().splitlines()[0]
    assert list(json.loads(line)) == [
        "stage", "error_type", "message", "traceback", "attempt", "file", "position", "row", "model_id",
    ]  # fmt: skip


def test_a_real_limit_of_file_size_is_explained(tmp_path: Path) -> None:
    script = (
        "import resource, sys, pyarrow as pa\n"
        "from headrace.sinks.json import JsonSink\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "part = JsonSink(sys.argv[1]).open_part(0, None, sys.argv[1])\n"
        "try:\n"
        "    part.write(pa.record_batch({'x': list(range(50_000))}))\n"
        "except Exception as error:\n"
        "    part.discard(); print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.stdout.startswith("SinkError cannot write")
    assert "raise the limit (ulimit -f)" in done.stdout
    assert os.listdir(tmp_path) == []


def test_rows_that_wait_are_saved_without_anybody_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = threading.Event()
    append = Segments.append

    def notice(self: Segments, blocks: list[Block]) -> object:
        found = append(self, blocks)
        saved.set()
        return found

    monkeypatch.setattr(Segments, "append", notice)
    committer = committer_for(str(tmp_path), SMALL)
    committer.open()
    committer.put(SMALL.process(SMALL.source_blocks()[0]))
    assert saved.wait(30)
    assert read_status(str(tmp_path)).waiting_rows == 10  # asked while the run goes on
    committer.abort()


def test_late_columns_in_a_remote_folder(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    if fs.exists("/late"):
        fs.rm("/late", recursive=True)
    job = Job(fates=((1,) * 10, (1,) * 10), late_column=True)
    run_to_end(committer_for("memory://late/out", job), job)
    names = set()
    for path in fs.glob("/late/out/part-*"):
        with fs.open(path) as file:
            names.add(tuple(pq.read_schema(file).names))
    assert names == {("id", "child", "note")}


class Broken(JsonSink):
    """A user's sink with a fault."""

    def open_part(self, number: int, schema: pa.Schema, staging: str):
        raise ZeroDivisionError("oops")


def test_a_fault_in_a_sink_ends_the_run_with_a_clear_error(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), SMALL, sink=Broken(str(tmp_path)))
    committer.open()
    with pytest.raises(SinkError, match="write_json.*ZeroDivisionError: oops"):
        for block in work_left(committer, SMALL, random.Random(0)):
            committer.put(block)
        committer.finish()
    committer.abort()
    assert visible(str(tmp_path), "*") == []
    run_to_end(committer_for(str(tmp_path), SMALL, sink=JsonSink(str(tmp_path)), if_exists="overwrite"), SMALL)


def test_a_schema_that_widens_among_the_children_of_one_row(tmp_path: Path) -> None:
    committer = Committer(ParquetSink(str(tmp_path)), identity=JobIdentity(), units=[Unit(0)])
    committer.open()
    ends = [((0,), (0, 1)), ((0, 1), (0, 2)), ((0, 2), END)]
    for (start, end), values in zip(ends, ([1], [1.5], [2]), strict=True):
        batch = pa.record_batch({"x": values})
        committer.put(Block(batch=batch, unit=Unit(0), start=start, end=end, ordinals=np.zeros(1, np.int64)))
    committer.finish()
    assert pq.read_table(tmp_path)["x"].to_pylist() == [1.0, 1.5, 2.0]


def test_errors_are_counted(tmp_path: Path) -> None:
    committer = Committer(ParquetSink(str(tmp_path)), identity=JobIdentity({"a": "b"}), units=[Unit(0)])
    committer.open()
    committer.put(replace(whole_unit(pa.record_batch({"x": [1, 2, None]})), errors=1))
    committer.finish()
    assert committer.statistics().with_error == 1
    again = Committer(ParquetSink(str(tmp_path)), identity=JobIdentity({"a": "b"}), units=[Unit(0)])
    again.open()
    assert again.statistics().with_error == 1
    again.abort()


def test_the_journal_knows_where_failed_rows_come_from_and_where_their_answers_belong(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    committer = committer_for(out, SMALL, rows_per_part=7)
    run_to_end(committer, SMALL)
    journal = Journal(os.path.join(out, ".headrace", "journal.sqlite"), read_only=True)
    failed = journal.failed()
    journal.close()
    assert [1_000 * row.split + row.ordinal for row in failed] == SMALL.failed()
    rows = SMALL.rows()
    for row in failed:
        whole = 1_000 * row.split + row.ordinal
        assert row.place == sum(id_ < whole for id_, _ in rows)
