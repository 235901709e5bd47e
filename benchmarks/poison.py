"""poison: rows that make every batch fail in which they are, and what finding them costs."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bars import Bar
from benchmarks.benchmark import WORK, Benchmark, Measurement, Settings
from benchmarks.machine import versions
from benchmarks.poison_rows import poisoned
from benchmarks.process import output_of
from benchmarks.rounds import interleave, ratio
from benchmarks.watching import rows_of

if TYPE_CHECKING:
    from pathlib import Path

RARE, COMMON = 10_000, 100
"""One row in so many is poison."""
NOT_EXACT = "rows that failed and are sound, or the other way round"
SPEED = "speed with 0.01 % poison / speed without"
CALLS = "handler calls a row with 1 % poison"


class Job:
    """One run over so many rows, of which one in so many is poison; its output is checked every time."""

    def __init__(self, rows: int, one_in: int) -> None:
        self._rows, self._one_in = rows, one_in
        self._out = WORK / f"poison-{one_in}"
        self.calls: list[float] = []
        """Handler calls a row, of each run."""
        self.not_exact = 0

    def __call__(self) -> float:
        """Run once and return the seconds, start-up left out."""
        shutil.rmtree(self._out, ignore_errors=True)
        program = [sys.executable, "-m", "benchmarks.programs.poisoned"]
        said = json.loads(output_of([*program, str(self._rows), str(self._one_in), str(self._out)]))
        self.calls.append(said["calls"] / self._rows)
        self.not_exact += misplaced(self._out, self._rows, self._one_in)
        return float(said["secs"])


def misplaced(out: Path, rows: int, one_in: int) -> int:
    """Count the rows that are not exactly once where they belong: poison in the dead letters, others in the output."""
    ids = np.arange(rows)
    bad = poisoned(ids, one_in)
    wrong = 0
    for folder, expected in ((out, ids[~bad]), (out / "_dead_letters", ids[bad])):
        found = Counter(key for key, _ in rows_of(folder, "id", None))
        found.subtract(expected.tolist())
        wrong += sum(map(abs, found.values()))
    return wrong


def measure(settings: Settings) -> Measurement:
    """Measure with and without poison in turns."""
    rows = 100_000 if settings.quick else 1_000_000
    jobs = {
        f"{rows} rows, {share} poison, s": Job(rows, n) for n, share in ((0, "no"), (RARE, "0.01 %"), (COMMON, "1 %"))
    }
    times = interleave(jobs, rounds=2 if settings.quick else 5)
    without, rare, common = jobs.values()
    clean_secs, rare_secs, _ = times.values()
    return Measurement(
        runs={**times, "handler calls a row, no poison": without.calls, "0.01 %": rare.calls, "1 %": common.calls},
        figures={
            NOT_EXACT: float(sum(job.not_exact for job in jobs.values())),
            SPEED: ratio(clean_secs, rare_secs),
            CALLS: max(common.calls),
        },
        versions=versions("headrace", "numpy", "pyarrow"),
    )


BENCHMARK = Benchmark(
    name="poison",
    about="1,000,000 rows through a small network that fails on any batch with poison in it: 0.01 % and 1 %",
    bars=(
        Bar(figure=NOT_EXACT, unit="rows", relation="<=", bound=0),
        Bar(figure=SPEED, unit="x", relation=">=", bound=0.9),
        Bar(figure=CALLS, unit="calls", relation="<=", bound=0.15),
    ),
    measure=measure,
)
