"""Accelerators that are not there: what a batch would cost on them, and how many rows would fit. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A batch takes a fixed time and one for each row; more rows than `limit_rows` do not fit."""

    name: str
    fixed_secs: float
    row_secs: float
    limit_rows: float = inf
    tile_rows: int = 1
    """Rows are worked on so many at a time, as matrix units do."""
    noise: float = 0.03
    """How much a batch's time strays from the rule, as a share of it."""
    warm_up_secs: float = 0.0
    """What the first batch takes longer."""

    def seconds(self, rows: int) -> float:
        """Return the time of a batch by the rule."""
        return self.fixed_secs + self.row_secs * self.tile_rows * -(-rows // self.tile_rows)

    def measured_seconds(self, rows: int, *, first: bool, luck: random.Random) -> float:
        """Return the time of a batch as a clock would show it."""
        return self.seconds(rows) * luck.uniform(1 - self.noise, 1 + self.noise) + self.warm_up_secs * first


ACCELERATORS = (
    Accelerator(name="small tabular model", fixed_secs=0.000_1, row_secs=0.000_000_2),
    Accelerator(name="network on a CPU", fixed_secs=0.002, row_secs=0.000_05),
    Accelerator(name="encoder on a CPU", fixed_secs=0.005, row_secs=0.003_5, noise=0.1),
    Accelerator(name="encoder on a GPU", fixed_secs=0.004, row_secs=0.000_1, tile_rows=8, warm_up_secs=4.0),
    Accelerator(name="picture model on a large GPU", fixed_secs=0.012, row_secs=0.000_25, limit_rows=4_000),
    Accelerator(name="picture model on a small GPU", fixed_secs=0.012, row_secs=0.000_9, limit_rows=171),
    Accelerator(name="large model on a small GPU", fixed_secs=0.15, row_secs=0.01, limit_rows=70, warm_up_secs=8.0),
    Accelerator(name="launch-bound model", fixed_secs=0.03, row_secs=0.000_004, limit_rows=100_000, tile_rows=64),
    Accelerator(name="slow rows", fixed_secs=0.001, row_secs=0.4),
)
