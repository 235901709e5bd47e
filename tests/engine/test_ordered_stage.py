"""Limit and shuffle: in the order of the input, and never a reason to stand still."""

import itertools
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.channel import Channel, Gate
from headrace.engine.clock import StageClock
from headrace.engine.ordered_stage import LimitStage, ShuffleStage
from headrace.engine.outlet import Edge, Needed, Outlet
from headrace.engine.state import RunState
from headrace.records.block import Block, Unit
from headrace.records.failure import RowFailure


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


@given(st.sets(st.integers(1, 39)), st.sets(st.integers(0, 39)), st.integers(2, 50))
def test_what_a_shuffle_draws_does_not_depend_on_how_rows_are_cut(
    cuts: set[int], failed: set[int], buffer_rows: int
) -> None:
    kept = np.array([i for i in range(40) if i not in failed], dtype=np.int64)
    failures = tuple(
        RowFailure(stage="map", ordinal=i, row=str(i), error_type="E", message="m") for i in sorted(failed)
    )
    whole = Block(
        batch=pa.record_batch({"x": kept}), unit=Unit(0), start=(0,), end=(40,), ordinals=kept, failures=failures
    )

    def drawn(blocks: list[Block]) -> list[tuple[int, list[int], list[str]]]:
        stage = ShuffleStage(
            SimpleNamespace(name="shuffle", replicas=1),
            RunState(),
            Outlet([]),
            Channel(budget_bytes=1, producers=1),
            name="shuffle",
            units=[Unit(0)],
            gate=Gate(budget_bytes=10),
            seed=1,
            buffer_rows=buffer_rows,
            unit=Unit(1),
            lanes={"map": ()},
        )
        out = [piece for b in blocks for piece in stage.take(b)] + list(stage.rest())
        return [
            (b.start[0], b.batch.column("x").to_pylist() if b.num_rows else [], [f.row for f in b.failures])
            for b in out
        ]

    edges = sorted({0, 40, *cuts})
    pieces = [whole.clip((a,), (b,)) for a, b in itertools.pairwise(edges)]
    assert drawn([p for p in pieces if p is not None]) == drawn([whole])
