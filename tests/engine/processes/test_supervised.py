"""Replicas whose workers die: every row comes once and is counted once, wherever it happens."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import steps
from headrace.engine.channel import Cancelled
from headrace.engine.processes.crew import Crew
from headrace.engine.processes.replica import ProcessReplica
from headrace.engine.processes.shared_blocks import Parcel
from headrace.engine.processes.supervised import SupervisedReplica
from headrace.engine.processes.terms import Terms
from headrace.engine.steps import StepChain
from headrace.errors import TooManyFailuresError, WorkerCrashedError
from headrace.model.calls import Call
from headrace.plan.steps import Step
from headrace.records.block import dense_block
from headrace.records.columns import to_rows
from tests.engine.processes import tasks


def children(row):
    if row["x"] % 5 == 4:
        raise ValueError("bad")
    return ({"x": row["x"], "child": i} for i in range(row["x"] % 4))


def even(row):
    return row["x"] % 2 == 0


def step(kind, function, name=None, **more):
    return Step(name=name or kind, kind=kind, function=function, on_error="dead_letter", **more)


CHAINS = {
    "flat_map": [step("flat_map", children)],
    "flat_map, filter": [step("flat_map", children), step("filter", lambda row: row["child"] != 1)],
    "filter, flat_map": [step("filter", even), step("flat_map", children)],
    "map_batches": [step("map_batches", lambda batch: batch, batch_size=2, row_wise=True)],
    "map_batches, filter": [step("map_batches", lambda b: b, batch_size=3, row_wise=True), step("filter", even)],
    "filter, map_batches": [step("filter", even), step("map_batches", lambda b: b, batch_size=2, row_wise=True)],
    "flat_map, flat_map": [step("flat_map", children, "a"), step("flat_map", children, "b")],
}


class Mortal:
    """A replica in this process that dies before its n-th piece, n as the schedule says."""

    pid = None

    def __init__(self, chain, schedule) -> None:
        self.chain, self.schedule = StepChain(chain, "dead_letter"), schedule
        self.known = {}

    def open(self) -> None:
        self.chain.open()

    def pack(self, block):
        return Parcel(block)

    def process(self, work, sentences):
        left = next(self.schedule, None)
        for piece in self.chain.process(work.block() if isinstance(work, Parcel) else work):
            if left == 0:
                error = WorkerCrashedError("died")
                error.call = Call(0, -1, 0, 10**6)
                raise error
            left = None if left is None else left - 1
            self.known = {name: replace(counts) for name, counts in self.chain.counts().items()}
            yield piece
        self.known = {name: replace(counts) for name, counts in self.chain.counts().items()}

    def counts(self):
        return self.known

    def statistics(self):
        return None

    def close(self) -> None:
        self.chain.close()


def supervised(make, terms=None, **options) -> SupervisedReplica:
    return SupervisedReplica(make, terms=terms or [Terms(name="map")], crew=Crew(), **options)


def worked_through(chain, blocks, deaths):
    schedule = iter(deaths)
    replica = supervised(lambda: Mortal(chain, schedule), [Terms.of(one) for one in chain])
    replica.open()
    pieces = [list(replica.process(block)) for block in blocks]
    counts = {name: replace(c, seconds=0.0) for name, c in replica.counts().items()}
    replica.close()
    return pieces, counts


def facts(pieces):
    rows = [
        (n, row)
        for block in pieces
        for n, row in zip(block.ordinal_array().tolist(), to_rows(block.batch), strict=True)
    ]
    return rows, sorted((f.stage, f.ordinal, f.row) for block in pieces for f in block.failures)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 25), min_size=1, max_size=3), deaths=st.lists(st.integers(0, 6), max_size=8))
def test_rows_failures_and_counts_are_those_of_a_run_without_deaths(chain, sizes, deaths) -> None:
    firsts = itertools.accumulate(sizes, initial=0)
    blocks = [
        dense_block(pa.record_batch({"x": list(range(first, first + size))}), split=0, first=first)
        for first, size in zip(firsts, sizes, strict=False)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "TARGET_BLOCK_BYTES", 48)
        patch.setattr(steps._FlatMap, "_limit", 1)
        calm, calm_counts = worked_through(chain, blocks, [])
        troubled, counts = worked_through(chain, blocks, deaths)
    for block, expected, pieces in zip(blocks, calm, troubled, strict=True):
        assert facts(pieces) == facts(expected)
        assert (pieces[0].start, pieces[-1].end) == (block.start, block.end)
        assert all(left.end == right.start and left.start < left.end for left, right in itertools.pairwise(pieces))
    assert counts == calm_counts


def process_of(task):
    return supervised(lambda: ProcessReplica(task, name="map_1"))


def test_deaths_outside_of_calls_are_borne_a_few_times_and_no_more() -> None:
    replica = process_of(tasks.ExitingHard())
    replica.open()
    try:
        with pytest.raises(WorkerCrashedError, match="status 7"):
            list(replica.process(tasks.block_of(3)))
        assert replica.restarts == 3
    finally:
        replica.close()


def test_a_kill_is_final() -> None:
    replica = process_of(tasks.Echo())
    replica.open()
    pieces = replica.process(tasks.block_of(3))
    replica.kill()
    with pytest.raises(Cancelled):
        list(pieces)
    replica.close()
    assert replica.restarts == 0


def test_killed_before_it_is_open_it_does_not_open() -> None:
    replica = process_of(tasks.Echo())
    replica.kill()
    with pytest.raises(Cancelled):
        replica.open()
    replica.close()


class Deadly(Mortal):
    """Dies in each row, which its parent then refuses."""

    def __init__(self, *, every=1, blocks=None, timed_out=False) -> None:
        """`blocks` begins with whether it dies in the next block; None: in all."""
        super().__init__([], iter(()))
        self.every, self.blocks, self.timed_out = every, blocks or itertools.repeat(True), timed_out

    def process(self, work, sentences):
        block = work.block() if isinstance(work, Parcel) else work
        row = sum(call.rows == 1 for call in sentences) * self.every
        if row < block.num_rows and next(self.blocks):
            error = WorkerCrashedError("died")
            error.call, error.how, error.timed_out = Call(0, row, 0, 1), "died", self.timed_out
            raise error
        yield block


def test_where_the_first_rows_all_kill_the_run_ends() -> None:
    replica = supervised(Deadly)
    with pytest.raises(TooManyFailuresError, match="all of the first 10 rows failed.*RowCrash"):
        list(replica.process(tasks.block_of(100)))


def test_where_rows_between_them_are_answered_those_that_kill_cost_themselves_alone() -> None:
    replica = supervised(lambda: Deadly(every=2))
    (block,) = replica.process(tasks.block_of(60))
    assert block.num_rows == 60
    assert replica.restarts == 60  # each of 30 rows has killed two


def slow_to_start(every: int = 1, blocks=None) -> SupervisedReplica:
    """Make a replica whose worker takes 5 s to start, for calls that may take 0.1 s."""
    times = itertools.count(0, 5.0)
    terms = [Terms(name="map", timeout_secs=0.1)]
    return supervised(lambda: Deadly(every=every, blocks=blocks, timed_out=True), terms, clock=lambda: next(times))


def test_where_starts_are_dearer_than_calls_may_be_three_rows_are_enough() -> None:
    replica = slow_to_start()
    replica.open()
    with pytest.raises(
        TooManyFailuresError, match=r"all of the first 3 rows .*worker took 5\.0 s to start.*timeout_secs"
    ):
        list(replica.process(tasks.block_of(100)))
    assert replica.restarts == 3


def test_nor_do_a_few_rows_that_are_in_time_keep_such_a_run_going() -> None:
    replica = slow_to_start(blocks=itertools.chain([False], itertools.repeat(True)))
    replica.open()
    assert [block.num_rows for block in replica.process(tasks.block_of(7))] == [7]
    with pytest.raises(TooManyFailuresError, match=r"10 of the first 17 rows failed"):
        list(replica.process(tasks.block_of(100)))


def test_a_run_most_of_whose_rows_are_in_time_goes_on() -> None:
    replica = slow_to_start(every=3)
    replica.open()
    assert sum(block.num_rows for block in replica.process(tasks.block_of(90))) == 90
    assert replica.restarts == 30


class MortalWhenDone(Mortal):
    """A replica that dies, if it does, when it has given its last piece, and takes no work without rows."""

    def process(self, work, sentences):
        work = work.block() if isinstance(work, Parcel) else work
        assert work.num_rows
        deaths, self.schedule = self.schedule, iter(())
        yield from super().process(work, sentences)
        self.schedule = deaths
        if next(deaths, 0):
            raise WorkerCrashedError("died")


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_worker_that_dies_with_all_delivered_leaves_no_work(chain) -> None:
    blocks = [dense_block(pa.record_batch({"x": list(range(5))}), split=0, first=0) for _ in range(2)]
    expected = worked_through(chain, blocks, [])
    schedule = iter([1, 0])
    replica = supervised(lambda: MortalWhenDone(chain, schedule), [Terms.of(one) for one in chain])
    replica.open()
    pieces = [list(replica.process(block)) for block in blocks]
    assert [facts(found) for found in pieces] == [facts(found) for found in expected[0]]
    assert {name: replace(c, seconds=0.0) for name, c in replica.counts().items()} == expected[1]
    replica.close()
