"""How long answers are late while a model changes under a running job, beside the usual time between two batches."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import headrace as hr
from benchmarks.bars import Bar
from benchmarks.benchmark import WORK, Benchmark, Measurement, Settings, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

WIDTH, QUICK_WIDTH = 4096, 256
"""Of the model's one square matrix: 64 MiB of float32."""
BATCH_ROWS = 32
BATCH_SECS, QUICK_BATCH_SECS = 0.05, 0.005
"""How long the accelerator is at work on a batch: the CPU is free meanwhile, and so are the loads of other programs."""
VERSIONS, QUICK_VERSIONS = 10, 3
BATCHES, QUICK_BATCHES = 300, 200
STILL_BATCHES = 60
"""Of a model that stays, to compare with."""
FIRST_BATCHES = 5
"""Not looked at: what it takes to begin is no pause of a change."""
ROUNDS = 3
ISOLATIONS = ("thread", "process")

BARS = {isolation: f"longest pause, isolation={isolation!r}" for isolation in ISOLATIONS}
MISSING = "versions that did not take over"
LOST = "rows lost, twice or by a version that was not announced"


class Matrix(hr.ModelHandler[Any]):
    """A matrix in a file, on an accelerator that takes its time; answers when it was done."""

    def __init__(self, path: str, batch_secs: float) -> None:
        self.path, self.batch_secs = path, batch_secs

    def load_model(self) -> NDArray[np.float32]:
        return np.load(self.path)

    def run_inference(self, batch: NDArray[np.int64], model: NDArray[np.float32]) -> NDArray[np.float64]:
        assert model.shape[0] == model.shape[1]
        time.sleep(self.batch_secs)
        return np.full(len(batch), time.perf_counter())  # one clock for all processes of the machine

    def model_files(self) -> list[str]:
        return [self.path]


def measure(settings: Settings) -> Measurement:
    """Announce versions one after another, as fast as they are taken, and look at when batches were answered."""
    rounds = 1 if settings.quick else ROUNDS
    runs: dict[str, list[float]] = {}
    missing = lost = 0
    for _ in range(rounds):
        for isolation in ISOLATIONS:
            still, changing, taken, wrong = one_round(isolation, quick=settings.quick)
            wanted = QUICK_VERSIONS if settings.quick else VERSIONS
            missing, lost = missing + wanted - taken, lost + wrong
            for what, ends in (("a model that stays", still), ("a changing model", changing)):
                pause, usual = longest_pause(ends)
                runs.setdefault(f"{what}, {isolation}: pause in batches", []).append(pause)
                runs.setdefault(f"{what}, {isolation}: seconds a batch", []).append(usual)
                say(f"  {isolation}, {what}: {pause:.2f} batches of {1000 * usual:.1f} ms")
    figures = {
        BARS[isolation]: statistics.median(runs[f"a changing model, {isolation}: pause in batches"])
        for isolation in ISOLATIONS
    }
    return Measurement(runs=runs, figures={**figures, MISSING: missing, LOST: lost})


def one_round(isolation: Any, *, quick: bool) -> tuple[NDArray[Any], NDArray[Any], int, int]:
    """Return when batches of a model that stays, and of one that changes, were answered; switches; wrong rows."""
    versions = QUICK_VERSIONS if quick else VERSIONS
    rows = BATCH_ROWS * (QUICK_BATCHES if quick else BATCHES)
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        paths = [f"{folder}/{name}.npy" for name in "ab"]
        for number, path in enumerate(paths):
            width = QUICK_WIDTH if quick else WIDTH
            np.save(path, np.random.default_rng(number).random((width, width), dtype=np.float32))

        def announced() -> Iterator[hr.ModelMetadata]:
            for number in range(versions):
                yield hr.ModelMetadata(paths[(number + 1) % 2], f"version {number + 1}")

        options: dict[str, Any] = {
            "inputs": "id", "batch_size": BATCH_ROWS, "isolation": isolation, "version": "1"
        }  # fmt: skip
        handler = Matrix(paths[0], QUICK_BATCH_SECS if quick else BATCH_SECS)
        still = hr.range(BATCH_ROWS * STILL_BATCHES).run_inference(handler, **options).to_arrow()
        out = Path(folder, "out")
        changed = hr.range(rows).run_inference(handler, updates=announced(), **options)
        result = changed.write_parquet(out).run()
        changing = hr.read_parquet(out).to_arrow()
    stage = next(stage for stage in result.statistics.stages if stage.updates is not None)
    assert stage.updates is not None
    names = {"a.npy", "Matrix", *(f"version {number + 1}" for number in range(versions))}
    strange = sum(name.partition("@")[0] not in names for name in changing["model_id"].to_pylist())
    wrong = strange + int((np.sort(changing["id"].to_numpy()) != np.arange(rows)).sum())
    return still["prediction"].to_numpy(), changing["prediction"].to_numpy(), stage.updates.switches, wrong


def longest_pause(answered: NDArray[np.float64]) -> tuple[float, float]:
    """Return by how much a batch was late at most, in batches, and the usual seconds between two.

    >>> longest_pause(np.array([0, 0, 1, 2, 3, 4, 9, 10, 13, 14, 15, 15]))
    (2.0, 1.0)
    """
    gaps = np.diff(np.unique(answered)[FIRST_BATCHES:])
    usual = float(np.median(gaps))
    return float(gaps.max() / usual - 1), usual


BENCHMARK = Benchmark(
    name="hot-swap",
    about="how late answers are at most while 10 versions of a model of 64 MiB take over, in batches of 50 ms",
    bars=(
        *(Bar(figure=figure, unit="batches", relation="<=", bound=2) for figure in BARS.values()),
        Bar(figure=MISSING, unit="versions", relation="<=", bound=0),
        Bar(figure=LOST, unit="rows", relation="<=", bound=0),
    ),
    measure=measure,
)
