"""How long a worker may stay in one call, as its parent sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.calls import Call

LOOK_SECS = 1.0
"""How often a parent that waits looks after its worker; more often where calls have a shorter time."""


class Patience:
    """Says when a call takes too long. Its time counts from when it was seen first: clocks of others do not matter.

    >>> from headrace.model.calls import Call
    >>> patience, call = Patience({0: 5.0}), Call(0, 7, 0, 1)
    >>> [patience.is_over(3, call, now) for now in (0.0, 5.0, 5.1)], patience.is_over(4, call, 5.2)
    ([False, False, True], False)
    """

    def __init__(self, limits_secs: Mapping[int, float]) -> None:
        """`limits_secs` says how long a call may take, by number of the step."""
        self._limits = limits_secs
        self._seen: int | None = None
        self._since = 0.0

    @property
    def look_secs(self) -> float:
        """How often to look."""
        return min(LOOK_SECS, *(limit / 5 for limit in self._limits.values())) if self._limits else LOOK_SECS

    def is_over(self, changes: int, call: Call | None, now: float) -> bool:
        """Look at a worker's mark, and say whether it has been in one call for too long."""
        if changes != self._seen:
            self._seen, self._since = changes, now
        limit = None if call is None else self._limits.get(call.step)
        return limit is not None and now - self._since > limit
