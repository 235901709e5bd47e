"""bulk-numpy: generated rows through a numpy transform into Parquet, and how memory grows with the input."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import pyarrow.parquet

from benchmarks.bars import Bar
from benchmarks.benchmark import FOLDER, WORK, Benchmark, Measurement, Settings
from benchmarks.equality import require_same
from benchmarks.machine import versions
from benchmarks.process import peak_memory_mib, wall_secs
from benchmarks.rounds import interleave, ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEED, GROWTH = "speed of headrace / speed of the hand loop", "growth of peak memory when the input grows 10 x"


def measure(settings: Settings) -> Measurement:
    """Measure time and memory in runs of their own, since looking at memory costs time."""
    full = 2_000_000 if settings.quick else 20_000_000
    ours, hand = WORK / "numpy-headrace", WORK / "numpy-hand"
    group = _check(full // 10, ours, hand)

    headrace, by_hand = f"headrace, {full} rows, s", f"hand loop, {full} rows, s"
    times = interleave(
        {
            headrace: partial(_into, ours, wall_secs, headrace_program(full, ours)),
            by_hand: partial(_into, hand, wall_secs, hand_program(full, hand, group)),
        },
        rounds=2 if settings.quick else 5,
    )
    small, large = f"headrace, {full // 10} rows, peak MiB", f"headrace, {full} rows, peak MiB"
    memory = interleave(
        {
            small: partial(_into, ours, peak_memory_mib, headrace_program(full // 10, ours)),
            large: partial(_into, ours, peak_memory_mib, headrace_program(full, ours)),
        },
        rounds=2 if settings.quick else 3,
    )
    figures = {
        SPEED: ratio(times[by_hand], times[headrace]),
        GROWTH: 100 * (median(memory[large]) / median(memory[small]) - 1),
    }
    return Measurement(runs={**times, **memory}, figures=figures, versions=versions("headrace", "pyarrow", "numpy"))


def headrace_program(rows: int, out: Path) -> list[str]:
    """Return the command that does it with Headrace."""
    return [sys.executable, str(FOLDER / "programs" / "headrace_numpy.py"), str(rows), str(out)]


def hand_program(rows: int, out: Path, group: int) -> list[str]:
    """Return the command that does it by hand, with row groups of `group` rows."""
    return [sys.executable, str(FOLDER / "peers" / "hand_numpy.py"), str(rows), str(out), str(group)]


def largest_row_group(folder: Path) -> int:
    """Return the rows of the largest row group of a folder's Parquet files."""
    groups = [
        metadata.row_group(i).num_rows
        for metadata in (pyarrow.parquet.read_metadata(file) for file in folder.glob("*.parquet"))
        for i in range(metadata.num_row_groups)
    ]
    return int(max(groups))


def _check(rows: int, ours: Path, hand: Path) -> int:
    """Compare the outputs at a small size and return the row group size that both shall write."""
    _into(ours, wall_secs, headrace_program(rows, ours))
    group = largest_row_group(ours)
    _into(hand, wall_secs, hand_program(rows, hand, group))
    require_same(hand, ours, key="id")
    return group


def _into(out: Path, measure_one: Callable[[list[str]], float], command: list[str]) -> float:
    shutil.rmtree(out, ignore_errors=True)
    return measure_one(command)


BENCHMARK = Benchmark(
    name="bulk-numpy",
    about="20,000,000 generated rows through a numpy transform into Parquet, beside a hand loop; memory",
    bars=(
        Bar(figure=SPEED, unit="x", relation=">=", bound=0.9),
        Bar(figure=GROWTH, unit="%", relation="<=", bound=10),
    ),
    measure=measure,
)
