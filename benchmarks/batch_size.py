"""How soon the batcher finds a good size on accelerators of several shapes; simulated, so that no clock is needed."""

from __future__ import annotations

import random
from math import log2
from typing import TYPE_CHECKING

from benchmarks.accelerators import ACCELERATORS
from benchmarks.bars import Bar
from benchmarks.benchmark import Benchmark, Measurement, Settings, say
from headrace.model.batching import Batcher
from headrace.model.cost import ENGINE_SECS, LONG_BATCH_SECS
from headrace.plan.nodes import BatchLimits

if TYPE_CHECKING:
    from benchmarks.accelerators import Accelerator

BATCHES = 20
"""After so many the size has to be a good one."""
MORE_BATCHES = 500
"""So many more are looked at for running out of memory."""
SEEDS = 20

SLOWER = f"after {BATCHES} batches slower than the best fixed size"
OVER = "times out of memory beyond log2(limit) + 2"


def measure(settings: Settings) -> Measurement:
    """Run every accelerator several times with other noise; the worst of all counts."""
    runs: dict[str, list[float]] = {}
    over: list[float] = []
    for accelerator in ACCELERATORS:
        best, rows = best_size(accelerator)
        slower = []
        for seed in range(2 if settings.quick else SEEDS):
            found, failures = learnt(accelerator, random.Random(seed))
            slower.append(seconds_a_row(accelerator, found) / best)
            if failures:
                over.append(failures - log2(accelerator.limit_rows) - 2)
        runs[f"{accelerator.name}, x the best"] = slower
        say(f"  {accelerator.name}: best {rows:,} rows, found {found:,}, {max(slower):.3f} x, {failures} out of memory")
    return Measurement(
        runs=runs,
        figures={SLOWER: max(max(values) for values in runs.values()), OVER: max(over)},
    )


def learnt(accelerator: Accelerator, luck: random.Random) -> tuple[int, int]:
    """Return the size aimed at after some batches, and how often memory ran out, in many more batches too."""
    batcher = Batcher(BatchLimits())
    failures, found = 0, 0
    for number in range(BATCHES + MORE_BATCHES):
        batcher.add(number, 2**20, now=0.0)
        batch = batcher.take(0.0)
        assert batch is not None
        failures += _answered(accelerator, batcher, batch.rows, first=number == 0, luck=luck)
        if number == BATCHES - 1:
            found = batcher.target_rows
    return found, failures


def _answered(accelerator: Accelerator, batcher: Batcher, rows: int, *, first: bool, luck: random.Random) -> int:
    """Answer a batch, in halves where it does not fit, as a predictor does; return how often it did not."""
    if rows <= accelerator.limit_rows:
        seconds = accelerator.measured_seconds(rows, first=first, luck=luck)
        batcher.observe(rows, seconds)
        return 0
    failures, parts = 0, [rows]
    while parts:
        part = parts.pop()
        if part > accelerator.limit_rows:
            failures += 1
            batcher.exhausted(part)
            parts += [part - part // 2, part // 2]
    return failures


def best_size(accelerator: Accelerator) -> tuple[float, int]:
    """Return the least time for a row that any fixed size gives, and that size.

    Sizes whose batches would take longer than about a second are left out unless they are single rows: Headrace keeps
    batches that short on purpose, since a kill costs what is in work.
    """
    sizes, size = [1], 1.0
    while accelerator.seconds(int(size)) <= max(LONG_BATCH_SECS, 2 * accelerator.fixed_secs):
        if size <= accelerator.limit_rows:
            sizes.append(int(size))
        size = max(size + 1, size * 1.02)
    return min((seconds_a_row(accelerator, size), size) for size in sizes)


def seconds_a_row(accelerator: Accelerator, rows: int) -> float:
    """Return what a row costs in batches of a size, the engine's own part included."""
    return (accelerator.seconds(rows) + ENGINE_SECS) / rows


BENCHMARK = Benchmark(
    name="batch-size",
    about="batch sizes found while running, on simulated accelerators, beside the best fixed size",
    bars=(
        Bar(figure=SLOWER, unit="x", relation="<=", bound=1.05),
        Bar(figure=OVER, unit="times", relation="<=", bound=0),
    ),
    measure=measure,
)
