"""How many worker processes a stage may have: fewer once they have run out of memory."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.engine.channel import Cancelled

if TYPE_CHECKING:
    from collections.abc import Iterator


LONGEST_WAIT_SECS = 120.0
"""A member that waits for room goes on after this time all the same: others may be waiting for its work."""


class Crew:
    """The replicas of one stage that have a worker process each.

    A member whose worker the system has killed keeps its work: it waits until another has left, and goes on. Members
    that wait have no process, so that two who wait do not wait for each other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._members = self._waiting = self._leaving = 0
        self._allowed: int | None = None
        self._cancelled = False

    @contextmanager
    def membership(self) -> Iterator[Member]:
        """Be a member while the block runs."""
        member = Member(self)
        with self._changed:
            self._members += 1
        try:
            yield member
        finally:
            with self._changed:
                self._members -= 1
                self._leaving -= member.is_dismissed
                self._changed.notify_all()

    def dismiss(self) -> bool:
        """Say whether a member is to leave, and count it as leaving."""
        with self._changed:
            if self._allowed is None or self._members - self._leaving <= self._allowed:
                return False
            self._leaving += 1
            return True

    def shrink(self) -> bool:
        """Allow one member less, since memory ran out; False where there was but one."""
        with self._changed:
            before = self._members if self._allowed is None else min(self._members, self._allowed)
            self._allowed = max(1, before - 1)
            return self._allowed < before

    def wait_for_room(self) -> None:
        """Wait, without a worker process, until so few others have one that this member may have one again.

        Raises:
            Cancelled: the run is being stopped.
        """
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(self._has_room, LONGEST_WAIT_SECS)
            finally:
                self._waiting -= 1
            if self._cancelled:
                raise Cancelled

    def cancel(self) -> None:
        """Wake everybody up with `Cancelled`."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._cancelled or self._allowed is None or self._members - self._waiting < self._allowed


class Member:
    """One replica's place in a crew."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.is_dismissed = False

    def dismissed(self) -> bool:
        """Say whether to leave, since the crew is larger than memory allows; asked between two pieces of work."""
        self.is_dismissed = self.is_dismissed or self._crew.dismiss()
        return self.is_dismissed
