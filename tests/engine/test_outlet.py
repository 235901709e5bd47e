"""Outlets: small blocks are seen into sinks as long as that is cheap."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import outlet as module
from headrace.engine.channel import Channel
from headrace.engine.commit.done import Done, joined
from headrace.engine.outlet import Edge, Needed, Outlet
from headrace.records.block import Block, Unit, dense_block


def block(rows: int = 3) -> Block:
    return dense_block(pa.record_batch({"x": list(range(rows))}), split=0, first=0)


def outlet_into(channel: Channel, *, into_sink: bool) -> Outlet:
    return Outlet([Edge(channel, (), Needed(None), into_sink=into_sink)])


def test_small_blocks_are_seen_into_a_sink() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    safe: list[Block] = []

    def sink() -> None:
        while (taken := channel.get()) is not None:
            safe.append(taken)

    thread = threading.Thread(target=sink)
    thread.start()
    outlet = outlet_into(channel, into_sink=True)
    assert outlet.settles
    outlet.put(block())
    assert len(safe) == 1
    outlet.close()
    thread.join()


def test_a_sink_that_takes_its_time_is_not_waited_for_again_and_again() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    outlet = outlet_into(channel, into_sink=True)
    puts = 0
    while outlet.settles:  # each wait in vain uses the allowance up
        outlet.put(block())
        puts += 1
    assert puts <= module.SETTLING_SECS / module.SETTLED_SOON_SECS + 1
    outlet.put(block())


def test_other_stages_are_not_waited_for() -> None:
    assert not outlet_into(Channel(budget_bytes=1, producers=1), into_sink=False).settles


def test_everything_is_needed_by_who_collects() -> None:
    needed = Needed(None)
    assert needed.unit(Unit(3))
    assert [piece.num_rows for piece in needed.pieces(block())] == [3]


def test_what_a_sink_has_is_not_needed() -> None:
    needed = Needed([(Done(frontier=(Unit(1), (2,))), ())])
    assert not needed.unit(Unit(0))
    assert needed.unit(Unit(1))
    rest = [replace(block(), unit=unit) for unit in (Unit(0), Unit(1), Unit(2))]
    assert [[p.start for p in needed.pieces(b)] for b in rest] == [[], [(2,)], [(0,)]]


def test_of_several_sinks_what_any_of_them_lacks_is_needed_and_no_more() -> None:
    ahead, behind = Done(frontier=(Unit(1), (2,))), Done(frontier=(Unit(0), (1,)))
    needed = Needed([(ahead, ()), (behind, ())])
    assert needed.unit(Unit(0))
    assert [(p.start, p.end) for p in needed.pieces(block())] == [((1,), (3,))]
    assert Needed([(ahead, ()), (ahead, ())]).pieces(block()) == []


RANGES = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4)), max_size=4)


@given(st.lists(RANGES, min_size=1, max_size=3))
def test_rows_are_needed_if_and_only_if_some_sink_lacks_them(have: list[list[tuple[int, int]]]) -> None:
    whole = block(12)
    dones = [Done(ranges={Unit(0): joined(((a,), (a + n,)) for a, n in ranges)}) for ranges in have]
    pieces = Needed([(done, ()) for done in dones]).pieces(whole)
    needed = [row for piece in pieces for row in piece.ordinal_array().tolist()]
    lacking = [i for i in range(12) if any(not any(a <= i < a + n for a, n in ranges) for ranges in have)]
    assert needed == lacking
    assert [row for piece in pieces for row in piece.batch["x"].to_pylist()] == lacking
    assert all(left.end < right.start for left, right in itertools.pairwise(pieces))


def test_a_sink_behind_a_union_is_asked_under_the_lane_that_the_union_adds() -> None:
    first_lane_done = Done(frontier=(Unit(0, (1,)), (0,)))
    through_first, through_second = (Needed([(first_lane_done, (lane,))]) for lane in (0, 1))
    assert not through_first.unit(Unit(0))
    assert through_second.unit(Unit(0))
    (piece,) = through_second.pieces(block())
    assert piece.unit == Unit(0)


def test_a_consumer_behind_a_union_gets_blocks_under_its_lane() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    Outlet([Edge(channel, (1,), Needed(None))]).put(block())
    taken = channel.get()
    assert taken is not None
    assert taken.unit == Unit(0, (1,))


def test_an_outlet_is_unwanted_when_every_consumer_has_had_enough() -> None:
    channels = [Channel(budget_bytes=1_000_000, producers=1) for _ in range(2)]
    outlet = Outlet([Edge(channel, (), Needed(None)) for channel in channels])
    channels[0].discard()
    assert not outlet.unwanted
    channels[1].discard()
    assert outlet.unwanted
