"""overhead: what the journal and the statistics cost, in CPU seconds of the bulk-numpy job."""

from __future__ import annotations

import json
import shutil
import sys
from statistics import median

from benchmarks.bars import Bar
from benchmarks.benchmark import WORK, Benchmark, Measurement, Settings, say
from benchmarks.machine import versions
from benchmarks.process import output_of

JOURNAL, STATISTICS = "journal, CPU seconds more", "statistics, CPU seconds more"
PARTS = {JOURNAL: "journal", STATISTICS: "statistics"}


def more(part_secs: float, whole_secs: float) -> float:
    """Return by how many per cent a part raises the CPU seconds of what is left without it.

    >>> round(more(0.1, 5.1), 3)
    2.0
    """
    return 100 * part_secs / (whole_secs - part_secs)


def measure(settings: Settings) -> Measurement:
    """Run the job with both watched; the percentages are within each run, so that no two runs are compared."""
    rows = 2_000_000 if settings.quick else 20_000_000
    out = WORK / "overhead"
    parts = ("whole", "journal", "statistics", "data")
    runs: dict[str, list[float]] = {f"{part}, CPU s": [] for part in parts}
    figures: dict[str, list[float]] = {name: [] for name in PARTS}
    for number in range(3 if settings.quick else 7):
        shutil.rmtree(out, ignore_errors=True)
        program = [sys.executable, "-m", "benchmarks.programs.headrace_overhead", str(rows), str(out)]
        secs = json.loads(output_of(program))
        for part in parts:
            runs[f"{part}, CPU s"].append(secs[part])
        for figure, part in PARTS.items():
            figures[figure].append(more(secs[part], secs["whole"]))
        say(f"  run {number + 1}: {secs}")
    return Measurement(
        runs=runs,
        figures={name: median(values) for name, values in figures.items()},
        versions=versions("headrace", "pyarrow", "numpy"),
    )


BENCHMARK = Benchmark(
    name="overhead",
    about="CPU seconds of journal and statistics, of 20,000,000 generated rows through a numpy transform into Parquet",
    bars=(
        Bar(figure=JOURNAL, unit="%", relation="<=", bound=2),
        Bar(figure=STATISTICS, unit="%", relation="<=", bound=1),
    ),
    measure=measure,
)
