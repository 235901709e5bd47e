"""How long calls took, in logarithmic buckets: bounded memory, quantiles within 5 %."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor, log2

_BUCKETS_PER_OCTAVE = 8
_SHORTEST_SECS = 1e-6


class Latencies:
    """Counts durations and gives their quantiles. Not locked.

    >>> latencies = Latencies()
    >>> for _ in range(99): latencies.add(0.010)
    >>> latencies.add(2.0)
    >>> round(latencies.quantile(0.5), 3), round(latencies.quantile(1.0))
    (0.01, 2)
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[floor(log2(max(seconds, _SHORTEST_SECS)) * _BUCKETS_PER_OCTAVE)] += 1

    def quantile(self, share: float) -> float:
        """Return the duration in seconds that `share` of all stay below; 0.0 when there are none."""
        left = max(1, ceil(share * self._counts.total()))
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return float(2 ** ((bucket + 0.5) / _BUCKETS_PER_OCTAVE))
        return 0.0
