"""A batch as the batcher cuts it: which rows of which sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one source, in ascending order."""

    source: int
    rows: range | NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that go into the model together."""

    pieces: list[Piece]
    rows: int
    weight: float
    """What the model has to work on: the sum of the rows' weights, or rows × longest where they are padded."""
    real_weight: float
    """The sum of the rows' weights."""
    key: str | None = None
    """Which of several models answers it."""
