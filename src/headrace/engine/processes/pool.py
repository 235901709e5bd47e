"""Shared memory that is used again: a sender fills a buffer anew once its receiver has let go of what was in it.

Making memory costs more than filling it: the system clears every page, and both sides map it. So each end of a wire has
a few buffers that stay. The first page of each says whether the receiver still looks at the rest.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.processes.memory_maps import map_shared
from headrace.engine.processes.shared_files import SharedFile, anonymous_file

PLACES = 2
"""Buffers that an end keeps: one is looked at while the next is filled."""

LARGEST_BYTES = 64 << 20
"""Larger blocks get memory of their own, which does not stay."""

HEAD_BYTES = mmap.ALLOCATIONGRANULARITY
"""Where the data begin; in front of them is the flag alone."""

_ROOMY = 4
"""A buffer so many times larger than what goes into it is given up: it was for larger blocks."""


class Pool:
    """The buffers of one end of a wire. One thread at a time takes and closes.

    >>> pool = Pool(places=1)
    >>> place = pool.take(100_000)
    >>> place.capacity >= 100_000, pool.take(100_000) is None  # it is in use
    (True, True)
    >>> place.let_go()
    >>> pool.take(90_000) is place
    True
    >>> place.let_go(), pool.close()
    (None, None)
    """

    def __init__(self, *, places: int = PLACES) -> None:
        """Make nothing yet."""
        self._places: list[Place | None] = [None] * places
        self._closed = False

    def take(self, nbytes: int) -> Place | None:
        """Return a buffer for so many bytes that nobody looks at, if there is one. `let_go` when it is sent."""
        if nbytes > LARGEST_BYTES or self._closed:
            return None
        free = [(n, place) for n, place in enumerate(self._places) if place is None or place.is_free]
        for _, place in free:
            if place is not None and nbytes <= place.capacity <= _ROOMY * nbytes:
                place.holders = 1
                return place
        if not free:
            return None
        number, old = next(((n, place) for n, place in free if place is None), free[0])
        if old is not None:
            old.close()
        place = self._places[number] = Place(number + 1, nbytes + nbytes // 8)
        return place

    def close(self) -> None:
        """Give up all buffers; those that are held here go with their holders."""
        self._closed = True
        for place in self._places:
            if place is not None:
                place.is_spent = True
                if not place.holders:
                    place.close()
        self._places = [None] * len(self._places)

    def has(self, place: Place) -> bool:
        """Whether a buffer is this pool's, so that its receiver knows it by number."""
        return place in self._places


class Place:
    """One buffer, on the side that fills it."""

    def __init__(self, number: int, capacity: int) -> None:
        self.number, self.capacity = number, capacity
        self.fd = anonymous_file("headrace-pool")
        os.ftruncate(self.fd, HEAD_BYTES + capacity)
        self._mapping = map_shared(self.fd, HEAD_BYTES + capacity, writable=True)
        self._flag = ctypes.c_int64.from_address(self._mapping.address)
        self._memory: Any = (ctypes.c_uint8 * capacity).from_address(self._mapping.address + HEAD_BYTES)
        self.holders = 1
        """On this side."""
        self.is_known = False
        """Whether the receiver has it."""
        self.is_spent = False
        """It is never filled again."""

    @property
    def is_free(self) -> bool:
        """Whether it may be filled."""
        return not (self.is_spent or self.holders or self._flag.value)

    def memory(self) -> pa.Buffer:
        """Return the memory to write to."""
        return pa.py_buffer(np.frombuffer(self._memory, dtype=np.uint8))

    def handed_over(self) -> SharedFile | None:
        """Note that the receiver looks at it from now on; return what to send along, None where it has it already."""
        self._flag.value = 1
        if self.is_known:
            return None
        self.is_known = True
        return SharedFile(os.dup(self.fd), HEAD_BYTES + self.capacity)

    def let_go(self) -> None:
        """Say that it is not needed on this side any more."""
        self.holders -= 1
        if self.is_spent and not self.holders:
            self.close()

    def copy_of_file(self, size: int) -> SharedFile:
        """Return its first bytes as a file for somebody else, to be looked at for ever: it is not filled again."""
        self.is_spent = True
        return SharedFile(os.dup(self.fd), size, offset=HEAD_BYTES)

    def close(self) -> None:
        """Unmap; what the receiver has of it stays there. Safe to call twice."""
        self.is_spent = True
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            del self._flag, self._memory, self._mapping


@dataclass(frozen=True, slots=True)
class Loan:
    """The first bytes of a buffer, to be sent."""

    place: Place
    size: int


class Received:
    """A buffer of the other end's pool, mapped here as long as it is in use there."""

    def __init__(self, fd: int) -> None:
        """Map a file, and close it."""
        try:
            size = os.fstat(fd).st_size
            self._flag_page = map_shared(fd, HEAD_BYTES, writable=True)
            self._data = map_shared(fd, size - HEAD_BYTES, offset=HEAD_BYTES)
        finally:
            os.close(fd)
        self.flag = ctypes.c_int64.from_address(self._flag_page.address)

    def look_at(self, size: int) -> pa.Buffer:
        """Return what is in it; the sender may fill it again when nobody refers to this any more."""
        return pa.foreign_buffer(self._data.address, size, base=_Look(self))


class _Look:
    """Says that nobody looks any more, when it is gone."""

    __slots__ = ("_pid", "_received")

    def __init__(self, received: Received) -> None:
        self._received = received
        self._pid = os.getpid()

    def __del__(self, getpid: object = os.getpid) -> None:
        if getpid() == self._pid:  # type: ignore[operator]  # not in a fork, whose parent goes on looking
            self._received.flag.value = 0
