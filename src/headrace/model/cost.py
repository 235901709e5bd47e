"""What a batch costs: time = fixed + per_weight * weight, learnt while the run goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import frexp, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

START_ROWS = 64
GROWTH = 4
LONG_BATCH_SECS = 1.0
FIXED_SHARE = 0.04
SHORT_BATCH_SECS = 0.1
NEGLIGIBLE_SHARE = 0.01
"""Beyond both, larger batches gain nothing and make the end of a run longer, when nothing is left beside the model."""
ENGINE_SECS = 0.0005
"""Cost of a batch outside the handler: cutting it, making its inputs, pairing its answers."""

_REMEMBERED = 5
_SURE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The learnt line; `fixed_secs` includes the engine's own part."""

    fixed_secs: float
    per_weight_secs: float


class CostModel:
    """Learns what batches cost and says how heavy the next one should be.

    Rows weigh 1 unless the batcher is told weights. Shared by all replicas of a stage; whoever shares it between
    threads serialises the calls.

    >>> cost = CostModel()
    >>> cost.target()
    64.0
    >>> cost.observe(64, 0.010)
    >>> cost.target()
    256
    """

    def __init__(self, points: Iterable[tuple[float, float]] = ()) -> None:
        """`points` are weights with their seconds, seen before."""
        # One entry a size class (power of two): the last few (weight, seconds). A median in each class keeps the slow
        # first calls of a model (lazy initialisation, caches) out of the line.
        self._classes: dict[int, deque[tuple[float, float]]] = {}
        for weight, seconds in points:
            self.observe(weight, seconds)

    def points(self) -> list[tuple[float, float]]:
        """Return what is known, a weight and its seconds for each size class."""
        return [_typical(seen) for seen in self._classes.values()]

    def observe(self, weight: float, seconds: float) -> None:
        """Take note of one batch that was answered whole."""
        if weight <= 0 or seconds < 0:
            return
        size_class = frexp(weight)[1]
        self._classes.setdefault(size_class, deque(maxlen=_REMEMBERED)).append((weight, seconds))

    def target(self, row_weight: float = 1.0) -> float:
        """Return the weight to aim at; `row_weight` is the mean weight of a row.

        Big enough that the fixed part is at most 4 % of the time, not so big that a batch takes longer than about a
        second (unless the fixed part alone does), and at most four times what has been tried. Where the fixed part is
        less than 1 % anyway, a tenth of a second is enough.
        """
        start = START_ROWS * row_weight
        cost = self.cost()
        if cost is None:
            return start
        if cost.per_weight_secs <= 0:
            return GROWTH * self._heaviest()
        wanted = max(start, _weight_at(FIXED_SHARE, cost))
        if len(self._classes) == 1:
            wanted = inf  # the fixed part shows only once two sizes have been tried
        if self._sure_of_heavy():
            short = SHORT_BATCH_SECS / cost.per_weight_secs
            if not self._alike():
                wanted = min(wanted, max(short, _weight_at(NEGLIGIBLE_SHARE, cost)))
            elif GROWTH * short <= self._heaviest():
                wanted = short  # far enough from what was tried for the fixed part to show
        longest = max(LONG_BATCH_SECS - cost.fixed_secs, cost.fixed_secs) / cost.per_weight_secs
        return max(row_weight, min(wanted, longest, GROWTH * self._heaviest()))

    def seconds(self, weight: float) -> float:
        """Return how long a batch of this weight will take; 0 as long as nothing is known."""
        cost = self.cost()
        return 0.0 if cost is None else cost.fixed_secs + cost.per_weight_secs * weight

    def weight_within(self, seconds: float) -> float:
        """Return the weight of the batch that takes so long; infinite as long as nothing is known."""
        cost = self.cost()
        if cost is None or cost.per_weight_secs <= 0:
            return inf
        return max(0.0, (seconds - cost.fixed_secs) / cost.per_weight_secs)

    def overhead(self, target: float) -> float:
        """Return the weight that takes as long as the fixed part; a guess from the target while nothing is known."""
        cost = self.cost()
        if cost is None or cost.per_weight_secs <= 0 or len(self._classes) == 1:
            return target * FIXED_SHARE / (1 - FIXED_SHARE)
        return cost.fixed_secs / cost.per_weight_secs

    def cost(self) -> Cost | None:
        """Return the line through what was seen, None before anything was."""
        if not self._classes:
            return None
        fixed, per_weight = _line(self.points())
        return Cost(fixed_secs=fixed + ENGINE_SECS, per_weight_secs=per_weight)

    def _sure_of_heavy(self) -> bool:
        """Whether heavy batches were tried so often that a model's slow first calls say nothing any more."""
        heaviest = max(self._classes)
        return sum(len(seen) for size, seen in self._classes.items() if size >= heaviest - 1) >= _SURE

    def _alike(self) -> bool:
        """Whether all sizes tried are so near to one another that the fixed part cannot show."""
        return max(self._classes) - min(self._classes) <= 1

    def _heaviest(self) -> float:
        return max(weight for weight, _ in self._classes[max(self._classes)])


def _weight_at(share: float, cost: Cost) -> float:
    """Return the weight at which the fixed part is this share of the time."""
    return cost.fixed_secs * (1 - share) / share / cost.per_weight_secs


def _typical(seen: deque[tuple[float, float]]) -> tuple[float, float]:
    """Return the observation of median speed, of an even number the faster one."""
    return sorted(seen, key=lambda one: one[1] / one[0])[(len(seen) - 1) // 2]


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Fit seconds = fixed + slope * weight with both parts ≥ 0, by least squares of the relative error."""
    sum_1 = sum_w = sum_s = sum_ww = sum_ws = 0.0
    for weight, seconds in points:
        trust = 1.0 / max(seconds, 1e-9) ** 2
        sum_1 += trust
        sum_w += trust * weight
        sum_s += trust * seconds
        sum_ww += trust * weight * weight
        sum_ws += trust * weight * seconds
    spread = sum_1 * sum_ww - sum_w * sum_w
    if len(points) == 1 or spread <= 1e-12 * sum_1 * sum_ww:
        return 0.0, sum_ws / sum_ww
    slope = (sum_1 * sum_ws - sum_w * sum_s) / spread
    fixed = (sum_s - slope * sum_w) / sum_1
    if fixed < 0:
        return 0.0, sum_ws / sum_ww
    if slope < 0:
        return sum_s / sum_1, 0.0
    return fixed, slope
