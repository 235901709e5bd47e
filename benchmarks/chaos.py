"""chaos: jobs killed again and again, at random moments and at every step of a commit, and gone on with until done."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from benchmarks.bars import Bar
from benchmarks.benchmark import WORK, Benchmark, Measurement, Settings, say
from benchmarks.calls import done_again, nbytes, read_calls, unexcused
from benchmarks.chaos_jobs import KEY, ChaosJob, faults_of
from benchmarks.killing import Ended, kill_child, kill_main, run
from benchmarks.machine import versions
from benchmarks.watching import Watch, Watching
from headrace.engine.commit.crash import CRASH_POINTS, VARIABLE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

KILLS, QUICK_KILLS = 100, 6
WHILE_STARTING = 0.25
"""Share of the kills that may fall before any row has been handled."""
LONGEST_WAIT_SECS = 2.0
SEED = 3

LOST, TWICE, WRONG = "rows lost", "rows there twice", "rows with a wrong answer"
UNREADABLE = "times that a reader found a file torn, a row gone or there twice"
AGAIN = "rows done again that were not in flight"
OTHERWISE = "runs that ended otherwise than they should"
LEFT = "processes left behind"
NOT_KILLED = "kills asked for that did not hit"
NOT_REACHED = "steps of a commit at which nothing was killed"
UNITS = {
    LOST: "rows",
    TWICE: "rows",
    WRONG: "rows",
    UNREADABLE: "times",
    AGAIN: "rows",
    OTHERWISE: "runs",
    LEFT: "processes",
    NOT_KILLED: "kills",
    NOT_REACHED: "steps",
}


@dataclass(slots=True)
class Tally:
    """What was done to all jobs, and what was found wrong."""

    faults: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    """Kills by what was killed."""
    reached: set[str] = field(default_factory=set)
    """Steps of a commit at which a run was killed."""
    again: list[float] = field(default_factory=list)
    """Rows handled again, a kill, of each life."""
    looks: list[float] = field(default_factory=list)
    """How often the reader looked, in each life."""

    def fault(self, name: str, count: int, what: object) -> None:
        """Count what should not be, and say so."""
        self.faults[name] += count
        if count:
            say(f"  FAULT: {name}: {count} ({what})")


class Life:
    """One job from an empty folder to its end, through any number of kills."""

    def __init__(self, job: ChaosJob, tally: Tally, place: Path) -> None:
        self._job, self._tally, self._place = job, tally, place
        self._out, self._calls = place / "out", place / "calls"
        self._calls.mkdir(parents=True)
        self._outputs = job.outputs()
        self._watching = Watching({output.folder: Watch(self._out / output.folder, KEY) for output in self._outputs})
        self._deaths: list[tuple[float, float]] = []
        """When something was killed, and when the run had ended that it belonged to."""

    def through(self, strikes: Callable[[Life], None]) -> None:
        """Let `strikes` kill what it wants, then go on until the job is done, and judge what came of it."""
        with self._watching:
            strikes(self)
            self.go_on()
        self._judge()

    def go_on(self) -> None:
        """Run to the end."""
        self._run()

    def kill(self, target: str, draw: Random) -> bool:
        """Run until a kill at a random moment, or to the end where that comes first; say whether it was hit."""
        ended = self._run(lambda process: self._strike(process, target, draw), target=target)
        if ended.killed_at is not None:
            self._tally.hits[target] += 1
            self._deaths.append((ended.killed_at, ended.ended_at))
        return ended.killed_at is not None

    def kill_at(self, step: str) -> None:
        """Run until the main process kills itself at a step of a commit, or to the end where there is no such step."""
        ended = self._run(target="main", env={VARIABLE: step})
        if ended.code == -signal.SIGKILL:
            self._tally.reached.add(step)
            self._tally.hits["main at a step"] += 1
            self._deaths.append((ended.ended_at, ended.ended_at))

    def _run(
        self,
        strike: Callable[[subprocess.Popen[bytes]], float | None] = lambda process: None,
        *,
        target: str | None = None,
        env: dict[str, str] | None = None,
    ) -> Ended:
        ended = run(self._job.command(self._out, self._calls), strike, env=env)
        self._tally.fault(LEFT, ended.left_behind, self._job.name)
        if not as_it_should(ended, target):
            self._tally.fault(OTHERWISE, 1, f"{self._job.name}, exit code {ended.code}: {ended.errors[-3000:]}")
        return ended

    def _strike(self, process: subprocess.Popen[bytes], target: str, draw: Random) -> float | None:
        before = nbytes(self._calls)
        if draw.random() > WHILE_STARTING:
            while process.poll() is None and nbytes(self._calls) == before:
                time.sleep(0.005)
        time.sleep(draw.uniform(0, LONGEST_WAIT_SECS))
        return kill_main(process) if target == "main" else kill_child(process, draw)

    def _judge(self) -> None:
        faults, fault = faults_of(self._out, self._outputs), self._tally.fault
        fault(LOST, faults.lost, self._place)
        fault(TWICE, faults.twice, self._place)
        fault(WRONG, faults.wrong, self._place)
        complaints = self._watching.complaints
        fault(UNREADABLE, len(complaints), "; ".join(complaints[:3]))
        calls = read_calls(self._calls)
        again = done_again(calls)
        # A row is needed again as long as one sink lacks it; of one that is not seen there nobody can tell.
        sinks = [output.folder for output in self._outputs if output.answer is not None]
        safe_at = {int(row): self._watching.safe_at(int(row), sinks) for row in calls["row"][again]}
        wrongly = unexcused(calls, self._deaths, patience_secs=self._job.patience_secs, safe_at=safe_at)
        fault(AGAIN, len(wrongly), f"{self._place}: {wrongly[:10]}")
        self._tally.again.append(len(again) / max(1, len(self._deaths)))
        self._tally.looks.append(self._watching.looks)
        say(f"  {self._job.name}: {len(self._deaths)} kills, {len(again)} of {self._job.rows} rows handled again")


def as_it_should(ended: Ended, target: str | None) -> bool:
    """Say whether a run ended as it should when `target` was struck at.

    A run whose main process is killed is killed. One that loses a worker may go on without it, or end with an error
    that says so. All others succeed.
    """
    if ended.code == 0:
        return True
    if target == "main":
        return ended.code == -signal.SIGKILL
    return target is not None and ended.killed_at is not None and "WorkerCrashedError" in ended.errors


def measure(settings: Settings) -> Measurement:
    """Kill at random moments, then at every step."""
    tally, draw = Tally(), Random(SEED)
    wanted = settings.kills if settings.kills is not None else QUICK_KILLS if settings.quick else KILLS
    rows, secs_a_row = 12_800 if settings.quick else 25_600, 0.0003
    long = [
        ChaosJob(name="csv-model", rows=rows, secs_a_row=secs_a_row, child="model host"),
        ChaosJob(name="json-rows", rows=rows // 8, secs_a_row=16 * secs_a_row, child="worker"),
        ChaosJob(name="two-sinks", rows=rows, secs_a_row=secs_a_row, child="worker or model host"),
        # With durability="row" only an answer whose write a kill prevents is paid for again.
        ChaosJob(name="paid-rows", rows=rows // 8, secs_a_row=4 * secs_a_row, child="model host", patience_secs=0.5),
    ]
    hits = 0
    for number, job in enumerate(cycle(long)):
        if hits >= wanted:
            break
        job.write_input()
        strikes = RandomStrikes(job, draw, kills=min(wanted - hits, wanted // len(long) + 1))
        Life(job, tally, WORK / f"{number:03d}-{job.name}").through(strikes)
        hits += strikes.hits
    short = [replace(job, rows=1_600, secs_a_row=0.0015) for job in long]
    for job in short[2:3] if settings.quick else short:
        job.write_input()
        for step in CRASH_POINTS:
            Life(job, tally, WORK / f"{step}-{job.name}").through(lambda life, step=step: life.kill_at(step))
    figures = {name: float(tally.faults[name]) for name in UNITS}
    figures[NOT_KILLED] = float(max(0, wanted - hits))
    figures[NOT_REACHED] = float(len(set(CRASH_POINTS) - tally.reached))
    return Measurement(
        runs={
            **{f"kills of {target}": [float(count)] for target, count in tally.hits.items()},
            "rows handled again a kill, by life": tally.again,
            "looks of the reader, by life": tally.looks,
        },
        figures=figures,
        versions=versions("headrace", "scikit-learn", "pyarrow", "numpy"),
    )


class RandomStrikes:
    """Kills the main process and its children in turn, until there is no more to kill or the job is done."""

    def __init__(self, job: ChaosJob, draw: Random, *, kills: int) -> None:
        self._targets = cycle(("main", job.child))
        self._draw, self._kills = draw, kills
        self.hits = 0

    def __call__(self, life: Life) -> None:
        """Kill while it runs."""
        while self.hits < self._kills and life.kill(next(self._targets), self._draw):
            self.hits += 1


BENCHMARK = Benchmark(
    name="chaos",
    about="100 kills at random moments, and one at every step of a commit, each followed by going on where it was",
    bars=tuple(Bar(figure=figure, unit=unit, relation="<=", bound=0) for figure, unit in UNITS.items()),
    measure=measure,
)
