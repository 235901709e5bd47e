"""Channels: queues of blocks between stages, bounded in bytes. A full one blocks its producers; nothing else does."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.records.block import Block


class Cancelled(BaseException):
    """The run is being stopped: leave the loop you are in. Never reaches a user, nor counts as an error of a row."""


class Channel:
    """A queue of blocks with a byte budget, any number of producers and any number of consumers.

    One block is always let in, however large, so that a budget can never stop a run for good.
    """

    def __init__(self, *, budget_bytes: int, producers: int) -> None:
        self.budget_bytes = budget_bytes
        self._blocks: deque[Block] = deque()
        self._held = 0
        self._producers = producers
        self._cancelled = False
        self.discarding = False
        """Set when the consumer has had enough: what is put is dropped from then on."""
        self._pressed = False
        self._waiting = 0
        """Consumers that wait for a block, and so are done with those they took."""
        self._changed = threading.Condition()

    def put(self, block: Block) -> None:
        """Append a block, waiting for room.

        Raises:
            Cancelled: the run is being stopped.
        """
        size = block.nbytes
        with self._changed:
            while not (self._has_room(size) or self._cancelled or self.discarding):
                self._changed.wait()
            if self._cancelled:
                raise Cancelled
            if self.discarding:
                return
            self._blocks.append(block)
            self._held += size
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        if self._pressed:
            return not self._blocks and self._waiting > 0
        return not self._blocks or self._held + size <= self.budget_bytes

    def press(self, pressed: bool) -> None:
        """Let in one block at a time, and only while a consumer waits for it, as long as memory is short."""
        with self._changed:
            self._pressed = pressed
            self._changed.notify_all()

    def get(self, timeout_secs: float | None = None) -> Block | None:
        """Take the next block; None when all producers are done and the channel is empty.

        Raises:
            Cancelled: the run is being stopped.
            TimeoutError: nothing came within the time.
        """
        with self._changed:
            if not self._blocks and self._producers and not self._cancelled:
                self._waiting += 1
                self._changed.notify_all()
                try:
                    arrived = self._changed.wait_for(
                        lambda: self._blocks or not self._producers or self._cancelled, timeout_secs
                    )
                finally:
                    self._waiting -= 1
                if not arrived:
                    raise TimeoutError
            if self._cancelled:
                raise Cancelled
            if not self._blocks:
                return None
            block = self._blocks.popleft()
            self._held -= block.nbytes
            self._changed.notify_all()
            return block

    def settle(self, timeout_secs: float) -> None:
        """Wait until a consumer has dealt with all that was put, if that is soon."""
        with self._changed:
            self._changed.wait_for(
                lambda: (self._waiting and not self._blocks) or self.discarding or self._cancelled, timeout_secs
            )

    def close(self) -> None:
        """Say that one producer is done."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()

    def discard(self) -> None:
        """Drop what is queued and whatever comes: the consumer has had enough."""
        with self._changed:
            self.discarding = True
            self._blocks.clear()
            self._held = 0
            self._changed.notify_all()

    def cancel(self) -> None:
        """Wake everybody up with `Cancelled` and drop what is queued."""
        with self._changed:
            self._cancelled = True
            self._blocks.clear()
            self._held = 0
            self._changed.notify_all()

    def fill(self) -> float:
        """Return the share of the byte budget in use, capped at 1."""
        return min(1.0, self._held / self.budget_bytes)


class Gate:
    """Keeps readers from running ahead while blocks wait in memory for their turn.

    A block that arrives before its turn is held by whoever needs the order of the input; above the budget, readers
    begin no new split until the late ones have come through.
    """

    def __init__(self, *, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._held = 0
        self._needed: dict[int, int] = {}
        self._crowded: set[int] = set()
        self._pressed = False
        self._turn = threading.Lock()
        self._cancelled = False
        self._changed = threading.Condition()

    def hold(self, delta_bytes: int, *, keeper: int, needed_split: int | None) -> None:
        """Count bytes that a keeper of order holds more (or, when negative, less), and the split that it waits for.

        A keeper that waits for none any more (None) has no say in which splits may be begun.
        """
        with self._changed:
            self._held += delta_bytes
            if needed_split is None:
                self._needed.pop(keeper, None)
            else:
                self._needed[keeper] = needed_split
            self._changed.notify_all()

    def crowd(self, keeper: int, needed_split: int | None) -> None:
        """Close as long as a keeper's rows fill the disk, but for the split that it waits for (None: they do not)."""
        with self._changed:
            if needed_split is None:
                self._crowded.discard(keeper)
                self._needed.pop(keeper, None)
            else:
                self._crowded.add(keeper)
                self._needed[keeper] = needed_split
            self._changed.notify_all()

    def press(self, pressed: bool) -> None:
        """Close as long as memory is short, and let readers make their blocks one after another."""
        with self._changed:
            self._pressed = pressed
            self._changed.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Make a block and send it on: one reader at a time where memory is short."""
        if not self._pressed:
            yield
            return
        with self._turn:
            yield

    @property
    def closed(self) -> bool:
        """Whether readers are being kept from new splits."""
        return self._pressed or bool(self._crowded) or self._held > self._budget

    def wait(self, split: int) -> None:
        """Wait until a split may be begun; one that somebody waits for may always be, or the run would stand still.

        Raises:
            Cancelled: the run is being stopped.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self.closed or self._cancelled or self._begins(split))
            if self._cancelled:
                raise Cancelled

    def _begins(self, split: int) -> bool:
        # Where nobody keeps an order there is nothing to wait for: what readers send on is admitted block by block.
        return not self._needed or split in self._needed.values()

    def cancel(self) -> None:
        """Wake everybody up with `Cancelled`."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
