"""bulk-csv: CSV files through a scikit-learn model into Parquet, whole processes from start to exit."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.bars import Bar
from benchmarks.benchmark import DATA, FOLDER, WORK, Benchmark, Measurement, Settings, say
from benchmarks.environment import peer_versions, peers_python
from benchmarks.equality import require_same
from benchmarks.generators import FEATURES, write_churn_model, write_customers
from benchmarks.machine import versions
from benchmarks.process import headrace_command, wall_secs
from benchmarks.rounds import interleave, ratio

if TYPE_CHECKING:
    from pathlib import Path

FILES = 16
API, INFER, HAND = "headrace", "headrace infer", "hand loop"
RAY, DAFT, BEAM = "ray data", "daft", "beam"

OF_HAND, INFER_OF_HAND = "headrace / hand loop", "headrace infer / hand loop"
OF_RAY, OF_DAFT, OF_BEAM = "ray data / headrace", "daft / headrace", "beam / headrace, seconds a row more"


@dataclass(frozen=True, slots=True)
class Program:
    """One way to do the job, as a command of SOURCE MODEL OUT."""

    name: str
    interpreter: str
    script: str

    def command(self, rows: int, out: Path) -> list[str]:
        """Return the command that scores `rows` customers."""
        source, model = customers_of(rows), DATA / "churn.pkl"
        if self.name == INFER:
            return [
                *headrace_command(),
                *("infer", f"sklearn:{model}", f"{source}/*.csv"),
                *("--inputs", ",".join(FEATURES), "--option", "proba_column=1", "--output-column", "score"),
                *("-o", str(out), "--quiet"),
            ]
        return [self.interpreter, str(FOLDER / self.script), str(source), str(model), str(out)]


@dataclass(slots=True)
class Job:
    """A program on an input of one size, measured again and again; its first output is checked."""

    program: Program
    rows: int
    checked: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """Name of its runs."""
        return f"{self.program.name}, {self.rows} rows, s"

    def __call__(self) -> float:
        """Run once into an empty folder and return the seconds."""
        out = WORK / f"{self.program.name.replace(' ', '-')}-{self.rows}"
        shutil.rmtree(out, ignore_errors=True)
        took = wall_secs(self.program.command(self.rows, out))
        if not self.checked and self.program.name != HAND:
            require_same(answers_to(self.rows), out, key="customer_id")
            self.checked = True
        shutil.rmtree(out, ignore_errors=True)
        return took


def customers_of(rows: int) -> Path:
    """Return the folder of the input with so many rows."""
    return DATA / f"customers-{rows}"


def answers_to(rows: int) -> Path:
    """Return the folder of the hand loop's output for so many rows."""
    return WORK / f"answers-{rows}"


def measure(settings: Settings) -> Measurement:
    """Measure all programs side by side."""
    full = 200_000 if settings.quick else 2_000_000
    small, tiny = full // 10, full // 100
    for rows in (full, small, tiny):
        write_customers(customers_of(rows), rows=rows, files=FILES)
    write_churn_model(DATA / "churn.pkl")
    for rows in (full, small, tiny) if settings.peers else (full, small):
        _write_answers(rows)

    ours = partial(Program, interpreter=sys.executable)
    api = ours(API, script="programs/headrace_csv.py")
    jobs = [
        Job(api, full),
        Job(ours(HAND, script="peers/hand_loop.py"), full),
        Job(ours(INFER, script=""), full),
        Job(api, small),
    ]
    measured = versions("headrace", "scikit-learn", "pyarrow", "numpy")
    if settings.peers:
        python = peers_python()
        measured |= peer_versions(python, "ray", "daft", "apache-beam", "scikit-learn", "pyarrow", "numpy")
        beam = Program(BEAM, python, "peers/beam_rows.py")
        jobs += [
            Job(Program(DAFT, python, "peers/daft_frame.py"), full),
            Job(Program(RAY, python, "peers/ray_data.py"), full),
            Job(beam, small),
            Job(beam, tiny),
        ]
    runs = interleave({job.name: job for job in jobs}, rounds=1 if settings.quick else 5)
    return Measurement(runs=runs, figures=_figures(runs, full, peers=settings.peers), versions=measured)


def _figures(runs: dict[str, list[float]], full: int, *, peers: bool) -> dict[str, float]:
    def of(program: str, rows: int = full) -> list[float]:
        return runs[f"{program}, {rows} rows, s"]

    figures = {OF_HAND: ratio(of(API), of(HAND)), INFER_OF_HAND: ratio(of(INFER), of(HAND))}
    if peers:
        ours = slope(of(API), of(API, full // 10), full - full // 10)
        theirs = slope(of(BEAM, full // 10), of(BEAM, full // 100), full // 10 - full // 100)
        figures |= {OF_RAY: ratio(of(RAY), of(API)), OF_DAFT: ratio(of(DAFT), of(API)), OF_BEAM: theirs / ours}
    return figures


def slope(large: list[float], small: list[float], more_rows: int) -> float:
    """Return the seconds that each further row costs, start-up left out; never 0, so that it can be divided by.

    >>> slope([3.0], [1.0], 1_000)
    0.002
    """
    return max((median(large) - median(small)) / more_rows, 1e-12)


def _write_answers(rows: int) -> None:
    """Run the hand loop once, so that there are answers to compare with, and all files are in the page cache."""
    say(f"  answers to compare with, {rows} rows")
    hand = Program(HAND, sys.executable, "peers/hand_loop.py")
    wall_secs(hand.command(rows, answers_to(rows)))


BENCHMARK = Benchmark(
    name="bulk-csv",
    about="2,000,000 rows in 16 CSV files, scikit-learn's predict_proba, Parquet; whole processes",
    bars=(
        Bar(figure=OF_HAND, unit="x", relation="<=", bound=1.05),
        Bar(figure=INFER_OF_HAND, unit="x", relation="<=", bound=1.05),
        Bar(figure=OF_RAY, unit="x", relation=">=", bound=6, needs_peers=True),
        Bar(figure=OF_DAFT, unit="x", relation=">=", bound=1.4, needs_peers=True),
        Bar(figure=OF_BEAM, unit="x", relation=">=", bound=15, needs_peers=True),
    ),
    measure=measure,
)
