"""Failed rows as the journal knows them: where each comes from, and where its answer belongs in the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """What a retry needs of a dead letter; all else stands in the letter."""

    split: int
    ordinal: int
    """The input row's number in its split."""
    place: int
    """Rows of the output that stand before it: where its answer would have been."""
    stage: str
    attempt: int = 1
    siblings: bool = False
    elsewhere: bool = False
    """Its letter is in the dead letters of another output."""

    @classmethod
    def of(cls, failure: RowFailure, block: Block, *, before: int) -> FailedRow:
        """Make the entry of a failure that travels in `block`, before whose rows there are `before` others.

        >>> import pyarrow as pa
        >>> from headrace.records.block import Block, Unit
        >>> from headrace.records.failure import RowFailure
        >>> block = Block(
        ...     batch=pa.record_batch({"x": [1, 3]}), unit=Unit(2), start=(5,), end=(8,), ordinals=np.array([5, 7])
        ... )
        >>> failure = RowFailure(stage="map", ordinal=6, row="{}", error_type="ValueError", message="no")
        >>> FailedRow.of(failure, block, before=10).place
        11
        """
        return cls(
            split=block.unit.split,
            ordinal=failure.ordinal,
            place=before + int(np.searchsorted(block.ordinal_array(), failure.ordinal)),
            stage=failure.stage,
            attempt=failure.attempt,
            siblings=failure.siblings,
            elsewhere=failure.elsewhere,
        )
