"""Outlets: small blocks are seen into sinks as long as that is cheap."""

from __future__ import annotations

import threading

import pyarrow as pa

from headrace.engine import outlet as module
from headrace.engine.channel import Channel
from headrace.engine.outlet import Edge, Needed, Outlet
from headrace.records.block import Block, dense_block


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
