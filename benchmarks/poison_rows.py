"""Which rows are poison: scattered, and the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np


def poisoned(ids: Any, one_in: int) -> Any:
    """Say for each id whether it is poison, as about one in so many are; 0 for none.

    >>> int(poisoned(np.arange(100_000), 100).sum()), bool(poisoned(np.arange(100_000), 0).any())
    (1004, False)
    """
    if one_in == 0:
        return np.zeros(len(ids), dtype=bool)
    mixed = (np.asarray(ids).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return mixed % np.uint64(one_in) == 0
