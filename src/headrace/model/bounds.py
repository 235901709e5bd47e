"""What the next batch may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of one batch; a row that is heavier than any of them goes alone."""

    target: float
    """Weight to aim at, unless that would be fewer than `min_rows`."""
    most: float = inf
    """Weight that no batch exceeds, whatever `min_rows` says."""
    min_rows: int = 1
    max_rows: float = inf
    overhead: float = 0.0
    """What a batch costs beside its rows, as a weight: padding is worth it up to about that."""
