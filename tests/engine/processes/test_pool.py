import os

import numpy as np
import pyarrow as pa

from headrace.engine.processes.pool import LARGEST_BYTES, Pool, Received
from headrace.engine.processes.shared_blocks import Parcel, unpack_block
from headrace.records.block import dense_block


def numbers(first: int, count: int = 50_000):
    return dense_block(pa.record_batch({"x": np.arange(first, first + count)}), split=0, first=0)


class Receiver:
    """What the other end of a wire does with what is lent to it."""

    def __init__(self):
        self.received = {}

    def get(self, parcel, pool):
        loan = parcel.payload(pool)
        if (file := loan.place.handed_over()) is not None:
            self.received[loan.place.number] = Received(file.fd)
        return unpack_block(parcel.head, self.received[loan.place.number].look_at(loan.size))


def test_a_buffer_is_filled_again_when_nobody_looks_at_it_any_more():
    pool, receiver = Pool(places=1), Receiver()
    for first in range(3):
        parcel = Parcel(numbers(first), pool)
        got = receiver.get(parcel, pool)
        parcel.close()
        assert got.batch.equals(numbers(first).batch)
        place = pool._places[0]
        assert not place.is_free
        del got
        assert place.is_free
    pool.close()


def test_what_is_looked_at_is_never_written_over():
    pool, receiver = Pool(places=2), Receiver()
    held = []
    for first in range(5):
        parcel = Parcel(numbers(first), pool)
        if pool._places[-1] is None or first < 2:
            held.append(receiver.get(parcel, pool).batch.column("x").slice(7).to_numpy())
        else:
            assert not hasattr(parcel.payload(pool), "place")  # a file of its own
        parcel.close()
    assert [array[0] for array in held] == [7, 8]
    pool.close()
    assert [array[-1] for array in held] == [49_999, 50_000]  # also when the sender is done


def test_a_buffer_that_is_too_small_or_much_too_large_gives_way_to_another():
    pool = Pool(places=1)
    small = pool.take(100_000)
    small.let_go()
    large = pool.take(10_000_000)
    assert large is not small
    assert large.capacity >= 10_000_000
    large.let_go()
    assert pool.take(100_000).capacity < 1_000_000
    assert pool.take(LARGEST_BYTES + 1) is None
    pool.close()


def test_a_parcel_goes_to_another_receiver_as_a_file():
    pool, other = Pool(), Pool()
    parcel = Parcel(numbers(3), pool)
    pool.close()  # the receiver is dead
    for _ in range(2):
        file = parcel.payload(other)
        assert file.offset > 0
        file.close()
        assert parcel.block().batch.equals(numbers(3).batch)
    again = parcel.block()
    parcel.close()
    assert again.batch.equals(numbers(3).batch)


def test_no_descriptor_is_left():
    before = len(os.listdir("/dev/fd"))
    pool, receiver = Pool(), Receiver()
    parcel = Parcel(numbers(0), pool)
    got = receiver.get(parcel, pool)
    parcel.block()
    parcel.close()
    pool.close()
    assert got.num_rows == 50_000
    assert len(os.listdir("/dev/fd")) == before


def test_a_fork_does_not_say_that_its_parent_no_longer_looks():
    pool, receiver = Pool(places=1), Receiver()
    parcel = Parcel(numbers(0), pool)
    got = receiver.get(parcel, pool)
    parcel.close()
    child = os.fork()
    if child == 0:
        del got
        os._exit(0)
    os.waitpid(child, 0)
    assert not pool._places[0].is_free
    del got
    assert pool._places[0].is_free
    pool.close()
