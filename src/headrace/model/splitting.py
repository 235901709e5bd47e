"""How many rows to ask at once where some rows fail: group testing, decided without threads and without a clock."""

from __future__ import annotations

from headrace.model.cost import ENGINE_SECS, Cost, CostModel

CALL_ROWS = (16.0, 4096.0)
"""Bounds on what a call is taken to cost, in rows: calls have a price that no clock shows, and clocks err."""
UNKNOWN_CALL_ROWS = 64.0
REMEMBERED_ROWS = 2**20
"""Of older rows half counts: what fails often in one part of the input may be rare in the next."""


class Splitting:
    """Learns how often rows fail and what calls cost; cuts batches so that finding bad rows costs least. Not locked.

    >>> splitting = Splitting()
    >>> splitting.rows_at_once(4096)
    4096
    >>> splitting.observe(10_000, failed=100)
    >>> splitting.rows_at_once(4096)
    32
    """

    def __init__(self) -> None:
        self._rows = self._failed = 0.0
        self._cost = CostModel()

    def answered(self, rows: int, seconds: float) -> None:
        """Note what one call has cost."""
        self._cost.observe(rows, seconds)

    def observe(self, rows: int, *, failed: int) -> None:
        """Note that so many of the rows have failed, each for itself."""
        if self._rows > REMEMBERED_ROWS:
            self._rows, self._failed = self._rows / 2, self._failed / 2
        self._rows += rows
        self._failed += failed

    def rows_at_once(self, count: int) -> int:
        """Return how many of `count` rows to ask in one call."""
        if not self._failed:
            return count
        size = cheapest_size(self._failed / self._rows, _call_rows(self._cost.cost()), most=count)
        return -(-count // -(-count // size))  # calls of equal size


def cheapest_size(failing: float, call_rows: float, *, most: int) -> int:
    """Return the size of calls at which rows cost least, when this share of them fails and failing calls are halved.

    A call costs as much as `call_rows` rows and its own. Where few rows fail large calls are best, since calls are
    dear; where many do, small ones, since all that a call has made is lost when it fails.

    >>> [cheapest_size(failing, 64.0, most=100_000) for failing in (0.0001, 0.01, 0.4)]
    [512, 32, 1]
    """
    if failing <= 0:
        return most
    # Costs of finding out about n rows: `fresh` when nothing is known, `bad` when a call for them has just failed.
    # `deduced` as `bad`, but the failure was that of a larger call, whose other half was sound.
    size, sound = 1, 1.0 - failing
    fresh, bad, deduced = call_rows + 1, 0.0, call_rows + 1
    best, least = 1, fresh
    while 2 * size <= most:
        call = call_rows + size
        left_bad = 1 / (1 + sound)
        bad = call + left_bad * (bad + fresh) + (1 - left_bad) * deduced
        size, sound = 2 * size, sound * sound
        fresh, deduced = call_rows + size + (1 - sound) * bad, bad
        if fresh / size < least:
            best, least = size, fresh / size
    return most if best * 2 > most else best


def _call_rows(cost: Cost | None) -> float:
    if cost is None or cost.per_weight_secs <= 0:
        return UNKNOWN_CALL_ROWS
    low, high = CALL_ROWS
    fixed_secs = cost.fixed_secs - ENGINE_SECS  # the engine's part is paid once a batch, however that is cut
    return min(max(fixed_secs / cost.per_weight_secs, low), high)
