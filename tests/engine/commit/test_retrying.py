"""Failed rows that are run again: each answer once, whenever the retry dies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.commit.abandoning import abandon_retry
from headrace.engine.commit.committer import Committer
from headrace.engine.commit.crash import RETRY_POINTS, VARIABLE
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.journal import Journal
from headrace.engine.commit.retrying import RetriedRow
from headrace.engine.commit.status import read_status
from headrace.errors import ResumeError
from tests.engine.commit.crashing_job import JOB, RETRIED
from tests.engine.commit.jobs import FAILS, Job, committer_for, everything, read_failures, read_rows, work_left

ROOT = str(Path(__file__).parents[3])
SMALL = Job(fates=((1, FAILS, 1, FAILS, 1), (FAILS, 1)))


def run_to_end(committer: Committer, job: Job) -> None:
    committer.open()
    for block in work_left(committer, job, random.Random(0)):
        committer.put(block)
    committer.finish()


def failed_in(out: str) -> list[FailedRow]:
    journal = Journal(os.path.join(out, ".headrace", "journal.sqlite"), read_only=True)
    try:
        return journal.failed()
    finally:
        journal.close()


def answers(before: Job, after: Job) -> list[tuple[int, int]]:
    """Return the rows that a retry adds, in the order of the input."""
    had = set(before.rows())
    return [row for row in after.rows() if row not in had]


fates = st.lists(st.sampled_from([1, 0, 2, FAILS, FAILS]), max_size=20).map(tuple)


@settings(max_examples=30, deadline=None)
@given(
    units=st.lists(fates, min_size=1, max_size=4).map(tuple),
    again=st.lists(st.sampled_from([1, 0, 2, FAILS]), min_size=1, max_size=5),
    rows_per_part=st.sampled_from([None, 1, 5]),
    late_column=st.booleans(),
    kills=st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_any_history_of_kills_ends_with_every_answer_once(
    tmp_path_factory: pytest.TempPathFactory,
    units: tuple[tuple[int, ...], ...],
    again: list[int],
    rows_per_part: int | None,
    late_column: bool,
    kills: list[tuple[int, bool, bool]],
    seed: int,
) -> None:
    out = str(tmp_path_factory.mktemp("retry") / "out")
    first = Job(fates=units, block_rows=6, late_column=late_column)
    run_to_end(committer_for(out, first, rows_per_part=rows_per_part), first)
    then = first.retried(*again)
    places = {(row.split, row.ordinal): row.place for row in failed_in(out)}
    rng = random.Random(seed)
    now = 0.0

    def opened() -> Committer:
        committer = committer_for(out, then, rows_per_part=rows_per_part, clock=lambda: now, choose=everything)
        committer.open()
        return committer

    for puts, gracefully, waits in kills:
        committer = opened()
        for block in work_left(committer, then, rng)[:puts]:
            committer.put(block)
        if waits:
            now += 60.0
            committer.flush()
        committer.abort() if gracefully else committer._close()
        seen = read_rows(out)
        assert seen == (first.rows() + answers(first, then))[: len(seen)]
    committer = opened()
    for block in work_left(committer, then, rng):
        committer.put(block)
    committer.finish()
    assert read_rows(out) == first.rows() + answers(first, then)
    assert sorted(read_failures(out)) == then.failed()
    left = failed_in(out)
    assert sorted(1_000 * row.split + row.ordinal for row in left) == then.failed()
    assert all(row.attempt == 2 and row.place == places[row.split, row.ordinal] for row in left)
    assert committer.statistics().dead_letters == len(then.failed())


def run_process(out: str, *arguments: str, crash_at: str | None = None) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.path.join(ROOT, "src")])}
    environment.pop(VARIABLE, None)
    if crash_at is not None:
        environment[VARIABLE] = crash_at
    command = [sys.executable, "-m", "tests.engine.commit.crashing_job", "json", out, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode


@pytest.mark.parametrize("point", [*RETRY_POINTS, "journal.before", "journal.after", "part.published", "finish.before"])
def test_death_at_every_step_of_a_retry(tmp_path: Path, point: str) -> None:
    out = str(tmp_path / "out")
    assert run_process(out) == 0
    assert run_process(out, "1", "retry", crash_at=point) != 0, "the point is passed"
    seen = read_rows(out)
    assert seen == (JOB.rows() + answers(JOB, RETRIED))[: len(seen)]
    assert run_process(out, "2", "retry") == 0
    assert read_rows(out)[: len(JOB.rows())] == JOB.rows()
    if point not in ("retry.finished", "letters.republished"):  # else that was one more retry, of what failed again
        assert sorted(read_failures(out)) == RETRIED.failed()
        assert read_rows(out) == JOB.rows() + answers(JOB, RETRIED)
    assert len(read_failures(out)) == len(failed_in(out))
    assert sorted(os.listdir(os.path.join(out, ".headrace"))) == ["journal.sqlite", "lock"]


def test_letters_that_cannot_be_run_again_stay(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run_to_end(committer_for(out, SMALL), SMALL)
    then = SMALL.retried(1)

    def second(failed: list[FailedRow]) -> list[RetriedRow]:
        return everything(failed)[1:2]

    run_to_end(committer_for(out, then, choose=second), then)
    assert read_failures(out) == [1, 1_000]
    assert [(row.split, row.ordinal) for row in failed_in(out)] == [(0, 1), (1, 0)]
    assert os.listdir(os.path.join(out, "_dead_letters")) == ["failures-00001.jsonl"]
    run_to_end(committer_for(out, then, choose=everything), then)
    assert read_failures(out) == []
    assert sorted(read_rows(out)) == then.rows()


def test_a_retry_reads_the_input_as_it_was_read_and_may_have_other_functions(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    before = JobIdentity({"source read": "a", "step map_1": "b"})
    run_to_end(committer_for(out, SMALL, identity=before), SMALL)
    with pytest.raises(ResumeError, match="input is read in another way.*source read has changed"):
        committer_for(out, SMALL, identity=JobIdentity({"source read": "x"}), choose=everything).open()
    then = SMALL.retried(1)
    after = JobIdentity({"source read": "a", "step map_2": "c"})
    run_to_end(committer_for(out, then, identity=after, choose=everything), then)
    committer = committer_for(out, then, identity=after)
    committer.open()
    assert committer.done.everything, "the same as is mended is the same job"
    committer.finish()


@settings(max_examples=20, deadline=None)
@given(
    units=st.lists(fates, min_size=1, max_size=3).map(tuple),
    again=st.lists(st.sampled_from([1, 0, 2, FAILS]), min_size=1, max_size=5),
    blocks=st.integers(0, 6),
    seed=st.integers(0, 2**32),
)
def test_a_retry_that_is_given_up_loses_no_row_and_has_none_twice(
    tmp_path_factory: pytest.TempPathFactory,
    units: tuple[tuple[int, ...], ...],
    again: list[int],
    blocks: int,
    seed: int,
) -> None:
    out = str(tmp_path_factory.mktemp("given-up") / "out")
    first = Job(fates=units, block_rows=3)
    run_to_end(committer_for(out, first), first)
    failed, then = failed_in(out), first.retried(*again)
    committer = committer_for(out, then, choose=everything)
    committer.open()
    if not committer.retrying:
        committer.finish()
        return
    for block in work_left(committer, then, random.Random(seed))[:blocks]:
        committer.put(block)
    committer.abort()

    left = abandon_retry(committer._sink)
    assert len(failed_in(out)) >= left
    assert {(row.split, row.ordinal) for row in failed_in(out)} <= {(row.split, row.ordinal) for row in failed}
    assert read_status(out).state == "finished"
    run_to_end(committer_for(out, then, choose=everything), then)
    assert sorted(read_rows(out)) == sorted(then.rows())
    assert len(read_failures(out)) == len(failed_in(out))


def test_what_is_not_finished_cannot_be_retried_and_a_retry_is_finished_first(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with pytest.raises(ResumeError, match="no job has written here"):
        committer_for(out, SMALL, choose=everything).open()
    assert not os.path.exists(out)
    committer = committer_for(out, SMALL)
    committer.open()
    committer.put(work_left(committer, SMALL, random.Random(0))[0])
    committer.abort()
    with pytest.raises(ResumeError, match="run the job to its end first"):
        committer_for(out, SMALL, choose=everything).open()
    run_to_end(committer_for(out, SMALL), SMALL)
    committer = committer_for(out, SMALL, choose=everything)
    committer.open()
    committer.abort()
    with pytest.raises(ResumeError, match="stopped halfway"):
        committer_for(out, SMALL).open()
    status = read_status(out)
    assert (status.state, status.retrying, status.dead_letters) == ("unfinished", 3, 0)
