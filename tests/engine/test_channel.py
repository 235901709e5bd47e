"""Channels: bounded in bytes, never stuck on one large block, woken by cancel."""

import threading

import pyarrow as pa
import pytest

from headrace.engine.channel import Cancelled, Channel, Gate
from headrace.records.block import dense_block


def block(rows: int = 10):
    return dense_block(pa.record_batch({"x": list(range(rows))}), split=0, first=0)


def test_blocks_come_out_in_order_and_none_at_the_end() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    first, second = block(1), block(2)
    channel.put(first)
    channel.put(second)
    channel.close()
    assert [channel.get(), channel.get(), channel.get()] == [first, second, None]


def test_a_block_larger_than_the_budget_is_let_in_alone() -> None:
    channel = Channel(budget_bytes=1, producers=1)
    channel.put(block(1000))
    assert channel.fill() == 1.0
    assert channel.get().num_rows == 1000


def test_a_full_channel_blocks_its_producer_until_there_is_room() -> None:
    channel = Channel(budget_bytes=100, producers=1)
    channel.put(block(10))
    done = threading.Event()

    def produce() -> None:
        channel.put(block(10))
        done.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert not done.is_set()
    channel.get()
    thread.join(5)
    assert done.is_set()


def test_the_end_needs_every_producer() -> None:
    channel = Channel(budget_bytes=100, producers=2)
    channel.close()
    with pytest.raises(TimeoutError):
        channel.get(timeout_secs=0.01)
    channel.close()
    assert channel.get() is None


def test_cancel_wakes_producer_and_consumer() -> None:
    channel = Channel(budget_bytes=1, producers=1)
    channel.put(block())
    seen: list[str] = []

    def produce() -> None:
        try:
            channel.put(block())
        except Cancelled:
            seen.append("producer")

    thread = threading.Thread(target=produce)
    thread.start()
    channel.cancel()
    thread.join(5)
    with pytest.raises(Cancelled):
        channel.get()
    assert seen == ["producer"]


def test_a_consumer_that_has_had_enough_takes_no_more() -> None:
    channel = Channel(budget_bytes=1, producers=1)
    channel.put(block())
    channel.discard()
    channel.put(block())  # would wait for room otherwise
    channel.close()
    assert channel.get() is None


def test_the_gate_keeps_readers_back_while_too_much_is_held() -> None:
    gate = Gate(budget_bytes=10)
    gate.hold(11, keeper=1, needed_split=3)
    assert gate.closed
    passed = threading.Event()

    def read() -> None:
        gate.wait(4)
        passed.set()

    thread = threading.Thread(target=read)
    thread.start()
    gate.hold(-5, keeper=1, needed_split=3)
    thread.join(5)
    assert passed.is_set()


def test_the_gate_lets_the_split_pass_that_is_waited_for() -> None:
    gate = Gate(budget_bytes=10)
    gate.hold(11, keeper=1, needed_split=3)
    gate.wait(3)
    gate.hold(0, keeper=2, needed_split=5)
    gate.wait(5)
    gate.cancel()
    with pytest.raises(Cancelled):
        gate.wait(6)


def test_what_a_finished_keeper_waited_for_does_not_open_the_gate_for_others() -> None:
    gate = Gate(budget_bytes=10)
    gate.hold(11, keeper=1, needed_split=3)
    gate.hold(0, keeper=2, needed_split=9)
    gate.hold(0, keeper=2, needed_split=None)
    gate.wait(3)
    gate.cancel()
    for split in (4, 9):
        with pytest.raises(Cancelled):
            gate.wait(split)


def test_a_keeper_far_ahead_lets_its_own_split_pass_and_none_in_between() -> None:
    gate = Gate(budget_bytes=10)
    gate.hold(11, keeper=1, needed_split=3)
    gate.hold(0, keeper=2, needed_split=100)
    gate.wait(100)
    gate.cancel()
    with pytest.raises(Cancelled):
        gate.wait(50)


def test_where_memory_is_short_a_block_goes_only_to_a_consumer_that_waits() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    channel.press(True)
    taken: list[object] = []
    put = threading.Event()

    def produce() -> None:
        channel.put(block())
        put.set()
        channel.put(block(2))
        channel.close()

    producer = threading.Thread(target=produce)
    producer.start()
    assert channel.fill() == 0.0
    taken.append(channel.get())
    assert put.wait(60)
    taken.append(channel.get())
    producer.join(60)
    assert [one.num_rows for one in taken] == [10, 2]
    assert channel.get() is None


def test_memory_that_is_enough_again_lets_blocks_in() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    channel.press(True)
    producer = threading.Thread(target=channel.put, args=(block(),))
    producer.start()
    channel.press(False)
    producer.join(60)
    assert channel.fill() > 0


def test_where_memory_is_short_the_gate_is_closed_but_for_the_split_that_is_waited_for() -> None:
    gate = Gate(budget_bytes=10)
    gate.press(True)
    gate.wait(7)  # nobody keeps an order
    gate.hold(0, keeper=1, needed_split=3)
    assert gate.closed
    gate.wait(3)
    gate.cancel()
    with pytest.raises(Cancelled):
        gate.wait(7)


def test_where_memory_is_short_readers_take_turns() -> None:
    gate = Gate(budget_bytes=10)
    gate.press(True)
    inside, most = 0, 0

    def read() -> None:
        nonlocal inside, most
        for _ in range(200):
            with gate.turn():
                inside += 1
                most = max(most, inside)
                inside -= 1

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert most == 1


def test_settling_waits_until_the_consumer_is_done_with_what_was_put() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    dealt_with = []

    def consume() -> None:
        while (taken := channel.get()) is not None:
            dealt_with.append(taken)

    consumer = threading.Thread(target=consume)
    consumer.start()
    for number in range(1, 50):
        channel.put(block(number))
        channel.settle(60)
        assert len(dealt_with) == number
    channel.close()
    consumer.join()


def test_settling_gives_up_where_nobody_consumes_and_where_all_is_over() -> None:
    channel = Channel(budget_bytes=1_000_000, producers=1)
    channel.put(block())
    channel.settle(0.001)
    channel.cancel()
    channel.settle(60)


def test_the_gate_is_closed_while_a_keeper_fills_the_disk() -> None:
    gate = Gate(budget_bytes=10)
    gate.crowd(1, 3)
    assert gate.closed
    gate.wait(3)
    gate.crowd(1, None)
    gate.wait(7)
    assert not gate.closed
