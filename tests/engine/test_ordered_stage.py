"""Limit and shuffle: in the order of the input, and never a reason to stand still."""

from types import SimpleNamespace

import pyarrow as pa

import headrace as hr
from headrace.engine.channel import Channel, Gate
from headrace.engine.clock import StageClock
from headrace.engine.ordered_stage import LimitStage
from headrace.engine.outlet import Edge, Needed, Outlet
from headrace.engine.state import RunState
from headrace.records.block import Block, Unit


def block(split: int, rows: int) -> Block:
    batch = pa.record_batch({"x": list(range(rows))})
    return Block(batch=batch, unit=Unit(split), start=(0,), end=(rows,))


def test_readers_do_not_wait_for_rows_that_a_limit_no_longer_wants() -> None:
    gate = Gate(budget_bytes=10)
    inbox, behind = (Channel(budget_bytes=1_000_000, producers=1) for _ in range(2))
    limit = LimitStage(
        SimpleNamespace(name="limit", replicas=1),
        RunState(),
        Outlet([Edge(behind, (), Needed(None))]),
        inbox,
        name="limit",
        units=[Unit(0), Unit(1)],
        gate=gate,
        rows=3,
    )
    inbox.put(block(1, 100))  # waits for the rest of split 0, which is not wanted any more
    inbox.put(block(0, 3))
    inbox.close()
    limit.work(0, StageClock())
    assert inbox.discarding
    assert not gate.closed
    assert [(b.unit.split, b.num_rows) for b in (behind.get(), behind.get()) if b is not None] == [(0, 3), (1, 0)]


def test_a_limit_inside_a_block_cuts_it() -> None:
    assert [r["id"] for r in hr.range(10).limit(4).iter_rows()] == [0, 1, 2, 3]


def test_a_limit_of_no_rows_and_one_beyond_the_input() -> None:
    assert hr.range(10).limit(0).count() == 0
    assert hr.range(10).limit(11).count() == 10


def test_a_shuffle_keeps_every_row_and_its_seed_decides_the_order() -> None:
    def order(seed: int) -> list[int]:
        return [r["id"] for r in hr.range(500).random_shuffle(seed=seed, buffer_rows=50).iter_rows()]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(500))
