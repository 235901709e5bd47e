"""What a benchmark is: a name, its bars, and a function that measures."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.bars import Bar

FOLDER = Path(__file__).parent
DATA = FOLDER / ".data"
"""Generated inputs, kept between runs."""
WORK = DATA / "work"
"""Outputs of the programs being measured, thrown away."""
RESULTS = FOLDER / "results"

MODULES = {
    "batch-size": "benchmarks.batch_size",
    "bulk-csv": "benchmarks.bulk_csv",
    "bulk-numpy": "benchmarks.bulk_numpy",
    "chaos": "benchmarks.chaos",
    "embed": "benchmarks.embed",
    "many-models": "benchmarks.many_models",
    "model-host": "benchmarks.model_host",
    "hot-swap": "benchmarks.hot_swap",
    "images": "benchmarks.images",
    "overhead": "benchmarks.overhead",
    "poison": "benchmarks.poison",
    "start-up": "benchmarks.start_up",
}
"""Benchmarks by name; each module holds a `BENCHMARK`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much to measure."""

    quick: bool = False
    """Small inputs and few rounds: shows that the benchmark works, not that a bar holds."""
    full: bool = False
    """The large input of benchmarks that have one, without peers, which would take hours."""
    peers: bool = True
    kills: int | None = None
    """How many kills at random moments; None for the usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a benchmark found: the raw runs behind the figures, the figures, and what was measured."""

    runs: Mapping[str, Sequence[float]]
    """Every measured value by what was measured, with its unit in the name."""
    figures: Mapping[str, float]
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    about: str
    bars: tuple[Bar, ...]
    measure: Callable[[Settings], Measurement]

    def bars_for(self, settings: Settings) -> tuple[Bar, ...]:
        """Return the bars that can be measured under these settings."""
        return tuple(
            bar
            for bar in self.bars
            if (settings.peers or not bar.needs_peers) and (settings.full or not bar.needs_full)
        )


def load(name: str) -> Benchmark:
    """Import a benchmark by its name.

    Raises:
        KeyError: there is no benchmark of that name.
    """
    benchmark: Benchmark = import_module(MODULES[name]).BENCHMARK
    return benchmark


def say(*words: Any) -> None:
    """Tell the person who waits; on stderr, since stdout is for the result."""
    print(*words, file=sys.stderr, flush=True)
