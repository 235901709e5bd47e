"""What a stage has learnt of its batches, to begin with in a later run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Costs and bounds, by weight.

    >>> Learnt.from_json(Learnt(costs=((64.0, 0.5),), fits=64.0).to_json())
    Learnt(costs=((64.0, 0.5),), fits=64.0, bursts=inf, burst_once=inf)
    """

    costs: tuple[tuple[float, float], ...] = ()
    """A weight and its seconds, for each size class that was seen."""
    fits: float = 0.0
    """The heaviest batch that was answered."""
    bursts: float = inf
    """The lightest for which memory did not suffice."""
    burst_once: float = inf
    """The same, before it was tried again."""

    def to_json(self) -> str:
        """Write as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Learnt:
        """Read what `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "costs": tuple((weight, seconds) for weight, seconds in values["costs"])})
