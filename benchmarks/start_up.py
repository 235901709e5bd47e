"""start-up: what a run costs before its first row."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.bars import Bar
from benchmarks.benchmark import DATA, FOLDER, WORK, Benchmark, Measurement, Settings
from benchmarks.equality import require_same
from benchmarks.generators import FEATURES, write_churn_model, write_customers
from benchmarks.machine import versions
from benchmarks.process import headrace_command, wall_secs
from benchmarks.rounds import interleave, ratio

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 10
INFER, PLAIN = "headrace infer, 10 rows, s", "plain script, 10 rows, s"
WITH, WITHOUT = "import pyarrow, numpy, headrace, s", "import pyarrow, numpy, s"
OF_PLAIN, IMPORT = "headrace infer / plain script", "import headrace on top of pyarrow and numpy"


def measure(settings: Settings) -> Measurement:
    """Measure ten rows and the bare import."""
    source, model = write_customers(DATA / f"customers-{ROWS}", rows=ROWS, files=1), DATA / "churn.pkl"
    write_churn_model(model)
    rounds = 3 if settings.quick else 15
    ours, plain = WORK / "start-up-headrace", WORK / "start-up-plain"
    candidates = {
        INFER: partial(_run_into, ours, infer_command(source, model, ours)),
        PLAIN: partial(_run_into, plain, plain_command(source, model, plain)),
        WITH: partial(wall_secs, [sys.executable, "-c", "import pyarrow, numpy; import headrace"]),
        WITHOUT: partial(wall_secs, [sys.executable, "-c", "import pyarrow, numpy"]),
    }
    for warm_up in candidates.values():  # compiled modules and the page cache belong to neither
        warm_up()
    runs = interleave(candidates, rounds=rounds)
    require_same(plain, ours, key="customer_id")
    figures = {
        OF_PLAIN: ratio(runs[INFER], runs[PLAIN]),
        IMPORT: median(runs[WITH]) - median(runs[WITHOUT]),
    }
    return Measurement(runs=runs, figures=figures, versions=versions("headrace", "scikit-learn", "pyarrow", "numpy"))


def infer_command(source: Path, model: Path, out: Path) -> list[str]:
    """Return the command line that users type."""
    inputs = ",".join(FEATURES)
    infer = ["infer", f"sklearn:{model}", f"{source}/*.csv", "--inputs", inputs, "--output-column", "score"]
    return [*headrace_command(), *infer, "-o", str(out)]


def plain_command(source: Path, model: Path, out: Path) -> list[str]:
    """Return the command of the script without Headrace."""
    script = FOLDER / "peers" / "plain_script.py"
    return [sys.executable, str(script), str(source / "part-000.csv"), str(model), str(out / "out.parquet")]


def _run_into(out: Path, command: list[str]) -> float:
    shutil.rmtree(out, ignore_errors=True)
    if out.name.endswith("plain"):  # Headrace makes its folder itself
        out.mkdir(parents=True)
    return wall_secs(command)


BENCHMARK = Benchmark(
    name="start-up",
    about="headrace infer on 10 rows beside a plain script, and the time of `import headrace`",
    bars=(
        Bar(figure=OF_PLAIN, unit="x", relation="<=", bound=1.25),
        Bar(figure=IMPORT, unit="s", relation="<=", bound=0.1),
    ),
    measure=measure,
)
