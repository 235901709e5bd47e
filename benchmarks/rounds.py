"""Interleaved rounds: A B C, A B C, …, so that what else the machine does falls on all alike."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.benchmark import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def interleave(candidates: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Measure every candidate once a round; return the values by candidate, in the order of the rounds.

    Every other round runs backwards (A B C, C B A, …): what comes behind a large program finds the system's caches
    cold, and nobody is to come behind one in every round.

    >>> interleave({"a": lambda: 1.0, "b": lambda: 2.0}, rounds=2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    values: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: -1 if number % 2 else 1]:
            value = candidates[name]()
            values[name].append(value)
            say(f"  round {number + 1}/{rounds}  {name}: {value:.3f}")
    return values


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios within each round: the pairs ran side by side, so drift cancels out.

    >>> ratio([2.0, 30.0, 4.0], [1.0, 10.0, 2.0])
    2.0
    """
    return median(a / b for a, b in zip(over, under, strict=True))


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median, 0 where all are equal.

    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
