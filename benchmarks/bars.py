"""Bars: the figures that Headrace has promised to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bound on one figure.

    >>> bar = Bar(figure="slower than the hand-written loop", unit="x", relation="<=", bound=1.05)
    >>> str(bar), bar.holds(1.04), bar.holds(1.06)
    ('<= 1.05 x', True, False)
    """

    figure: str
    unit: str
    relation: Literal["<=", ">="]
    bound: float
    needs_peers: bool = False
    """Whether the figure compares with another system, and so is left out under --no-peers."""
    needs_full: bool = False
    """Whether the figure is of the large input, and so is left out without --full."""

    def holds(self, value: float) -> bool:
        """Say whether a measured value keeps the bar (NaN never does)."""
        return value <= self.bound if self.relation == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g} {self.unit}"
