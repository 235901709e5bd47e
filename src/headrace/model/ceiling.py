"""How heavy batches may be for memory to suffice, found out by trying."""

from __future__ import annotations

from math import inf, sqrt

CLOSE = 1.05
"""A weight that fits and one that does not are not brought closer together than this."""
STEP = 1.25
"""Growth beyond what was once too much."""
PATIENCE = 100
"""Batches near the ceiling before more is tried than was once too much; doubled whenever that was wrong."""


class Ceiling:
    """Between the heaviest batch that was answered and the lightest that ran out of memory. Not locked.

    Where memory may have come free since, a little more is tried again, more and more seldom.

    >>> ceiling = Ceiling()
    >>> ceiling.answered(256)
    >>> ceiling.weight
    inf
    >>> ceiling.exhausted(1024)
    >>> ceiling.weight
    512.0
    """

    def __init__(self, fits: float = 0.0, bursts: float = inf, burst_once: float = inf) -> None:
        """Begin with what is known: the heaviest that fits, the lightest that does not, and did not once."""
        self._fits, self._bursts = fits, bursts
        self._burst_once = burst_once
        """What was too much before it was tried again."""
        self._patience = PATIENCE
        self._waited = 0

    @property
    def weight(self) -> float:
        """The heaviest batch to try."""
        if self._bursts == inf:
            return STEP * self._fits if self._burst_once < inf else inf
        if not self._fits:
            return self._bursts / 2
        return self._fits if self._bursts <= CLOSE * self._fits else sqrt(self._fits * self._bursts)

    def known(self) -> tuple[float, float, float]:
        """Return what a ceiling like this begins with."""
        return self._fits, self._bursts, self._burst_once

    def answered(self, weight: float) -> None:
        """Note that a batch was answered whole."""
        self._waited += weight * CLOSE >= self._fits
        self._fits = max(self._fits, weight)
        if weight >= self._bursts or self._waited >= self._patience:
            self._burst_once, self._bursts, self._waited = min(self._burst_once, self._bursts), inf, 0

    def exhausted(self, weight: float) -> None:
        """Note that memory ran out in a call of this weight."""
        if weight <= self._fits:
            self._fits = 0.0  # there is less room than there was
        elif self._bursts == inf and self._fits < self._burst_once < inf:
            self._patience *= 2
            weight = self._burst_once  # no more room than there was
        self._bursts, self._burst_once = min(self._bursts, weight), min(self._burst_once, weight)
        self._waited = 0
