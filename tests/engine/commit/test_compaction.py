"""Parts put together anew: every row once and in the order of the input, whenever it dies."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.compaction import Compacted, compact
from headrace.engine.commit.crash import COMPACTION_POINTS
from headrace.engine.commit.status import read_status
from headrace.errors import ResumeError, SinkError
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from headrace.testing import CollectingSink
from tests.engine.commit.crashing_job import RETRIED
from tests.engine.commit.jobs import FAILS, Job, committer_for, everything, read_rows, visible, work_left
from tests.engine.commit.test_retrying import failed_in, run_process

SINKS = [ParquetSink, CsvSink, JsonSink]
FIRST = Job(fates=((1, FAILS, 1, FAILS, 2, 1), (FAILS, 1, 0), (1,)), late_column=True)
SECOND = FIRST.retried(2, FAILS, 1)
THIRD = SECOND.retried(1)


def run_to_end(committer: Committer, job: Job) -> None:
    committer.open()
    for block in work_left(committer, job, random.Random(0)):
        committer.put(block)
    committer.finish()


def made(out: str, sink: Any, *jobs: Job) -> None:
    """Run the first of the jobs, and retry with the others."""
    for i, job in enumerate(jobs):
        committer = committer_for(out, job, sink=sink, rows_per_part=2, choose=everything if i else None)
        run_to_end(committer, job)


@pytest.mark.parametrize("kind", SINKS)
def test_answers_of_retries_take_their_place(tmp_path: Path, kind: Any) -> None:
    out = str(tmp_path)
    sink = kind(out)
    made(out, sink, FIRST, SECOND)
    assert read_rows(out) != SECOND.rows()
    done = compact(sink, rows_per_part=4)
    assert read_rows(out) == SECOND.rows()
    assert (done.rows, done.parts) == (10, 3)
    assert done.nbytes == sum(os.path.getsize(path) for path in visible(out))
    # Rows that are still failed know their new places.
    run_to_end(committer_for(out, THIRD, sink=sink, choose=everything), THIRD)
    compact(sink)
    assert read_rows(out) == THIRD.rows()
    assert len(visible(out)) == 1
    assert sorted(os.listdir(tmp_path / ".headrace")) == ["journal.sqlite", "lock"]


@pytest.mark.parametrize("kind", SINKS)
def test_two_retries_before_one_compaction(tmp_path: Path, kind: Any) -> None:
    sink = kind(str(tmp_path))
    made(str(tmp_path), sink, FIRST, SECOND, THIRD)
    compact(sink)
    assert read_rows(str(tmp_path)) == THIRD.rows()


def test_what_is_compact_already_is_left_alone(tmp_path: Path) -> None:
    out = str(tmp_path)
    made(out, ParquetSink(out), SECOND)
    compact(ParquetSink(out))
    before = {path: os.stat(path).st_ino for path in visible(out)}
    assert compact(ParquetSink(out)) == Compacted(rows=10, parts_before=1, parts=1, nbytes=os.path.getsize(*before))
    assert {path: os.stat(path).st_ino for path in visible(out)} == before


def test_parts_may_be_cut_by_bytes(tmp_path: Path) -> None:
    out = str(tmp_path)
    job = Job(fates=((1,) * 2_000,), block_rows=500)
    run_to_end(committer_for(out, job, sink=JsonSink(out), rows_per_part=100), job)
    compact(JsonSink(out), target_part_bytes=20_000)
    sizes = [os.path.getsize(path) for path in visible(out)]
    assert all(15_000 < size < 25_000 for size in sizes[:-1])
    assert read_rows(out) == job.rows()


def test_records_of_csv_with_line_breaks_stay_whole(tmp_path: Path) -> None:
    import pyarrow as pa

    sink = CsvSink(str(tmp_path))
    texts = ['a\n"b"', "", "c,d\n\n", None, "e"]
    part = sink.open_part(0, pa.schema({"t": pa.string(), "n": pa.int64()}), str(tmp_path))
    part.write(pa.record_batch({"t": pa.array(texts), "n": pa.array(range(5))}))
    sink.publish(part.prepare())
    rows = sink.open_rows(str(tmp_path / "part-00000.csv"))
    taken = [b"".join(rows.take(count)) for count in (2, 3)]
    with pytest.raises(EOFError):
        list(rows.take(1))
    rows.close()
    assert b'"t","n"\n' + b"".join(taken) == (tmp_path / "part-00000.csv").read_bytes()
    assert taken[0] == b'"a\n""b""",0\n"",1\n'


def test_types_of_parquet_stay(tmp_path: Path) -> None:
    out = str(tmp_path)
    made(out, ParquetSink(out), FIRST)
    before = pq.read_schema(visible(out)[0])
    compact(ParquetSink(out))
    assert pq.read_schema(visible(out)[0]).equals(before)


@pytest.mark.parametrize("point", COMPACTION_POINTS)
def test_death_at_every_step(tmp_path: Path, point: str) -> None:
    out = str(tmp_path / "out")
    assert run_process(out) == 0
    assert run_process(out, "1", "retry") == 0
    assert run_process(out, "2", "compact", crash_at=point) != 0, "the point is passed"
    for path in visible(out):
        assert all(json.loads(line) for line in Path(path).read_text().splitlines()), "files are whole"
    places = {row.ordinal for row in failed_in(out)}
    assert run_process(out, "3", "compact") == 0
    assert read_rows(out) == RETRIED.rows()
    assert {row.ordinal for row in failed_in(out)} == places
    assert sorted(os.listdir(os.path.join(out, ".headrace"))) == ["journal.sqlite", "lock"]


def test_a_later_run_makes_up_for_a_compaction_that_died(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert run_process(out) == 0
    assert run_process(out, "1", "retry") == 0
    assert run_process(out, "2", "compact", crash_at="compact.committed") != 0
    assert run_process(out, "3") == 0, "the job is finished, so that this does nothing else"
    assert read_rows(out) == RETRIED.rows()


def test_only_finished_outputs_of_files_can_be_compacted(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with pytest.raises(ResumeError, match="no job has written here"):
        compact(ParquetSink(out))
    assert not os.path.exists(out)
    committer = committer_for(out, FIRST)
    committer.open()
    committer.put(work_left(committer, FIRST, random.Random(0))[0])
    committer.abort()
    waiting = read_status(out).waiting_rows
    assert waiting
    with pytest.raises(ResumeError, match="only a finished output"):
        compact(ParquetSink(out))
    assert read_status(out).waiting_rows == waiting, "what is finished is still there"
    with pytest.raises(SinkError, match="only files in a folder"):
        compact(CollectingSink())
    with pytest.raises(ResumeError, match="no job has written here"):
        compact(ParquetSink("memory://out"))


def test_a_part_that_was_changed_is_named(tmp_path: Path) -> None:
    out = str(tmp_path)
    made(out, JsonSink(out), FIRST)
    Path(visible(out)[1]).write_text("{}\n")
    with pytest.raises(ResumeError, match="part-00001.jsonl was finished with"):
        compact(JsonSink(out))


def test_a_retry_that_was_stopped_is_named(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert run_process(out) == 0
    assert run_process(out, "1", "retry", crash_at="retry.begun") != 0
    with pytest.raises(ResumeError, match="retry of its failed rows was stopped halfway; go on with it first"):
        compact(JsonSink(out))
