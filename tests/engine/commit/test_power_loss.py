"""The power is cut at every step of a commit: what was not fsynced is gone, and no row is lost or there twice."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.crash import CRASH_POINTS
from headrace.sinks.csv import CsvSink
from headrace.sinks.parquet import ParquetSink
from tests.engine.commit.jobs import Job, committer_for, read_failures, read_rows, work_left
from tests.engine.commit.power import Disk, powered

JOB = Job(fates=((1,) * 40, (2, 0, -1, 1) * 10, (1, 3) * 15), block_rows=7, late_column=True)
SINKS = {"parquet": ParquetSink, "csv": CsvSink}
PASSES = 2


def committer(out: Path, kind: str, now: list[float]) -> Committer:
    return committer_for(str(out), JOB, sink=SINKS[kind](str(out)), rows_per_part=25, clock=lambda: now[0])


def run(out: Path, kind: str, seed: int) -> None:
    now = [0.0]
    running = committer(out, kind, now)
    running.open()
    for i, block in enumerate(work_left(running, JOB, random.Random(seed))):
        running.put(block)
        if i % 5 == 4:  # now and then rows have waited long enough for a segment
            now[0] += 60.0
            running.flush()
    running.finish()


def check_end(out: Path) -> None:
    assert read_rows(str(out)) == JOB.rows()
    assert sorted(read_failures(str(out))) == JOB.failed()


def cuts_of(place: Path, kind: str, draw: random.Random | None, *, begun: Path | None = None) -> dict[str, list[Path]]:
    """Run the job to its end, and return what a cut at each step (but not at each pass of it) would have left."""
    left: dict[str, list[Path]] = {}
    lock = threading.Lock()

    def cut(disk: Disk, step: str) -> None:
        with lock:
            cuts = left.setdefault(step, [])
            target = place / f"{step}-{len(cuts)}"
            if len(cuts) < PASSES:
                cuts.append(target)
                disk.copy_what_is_left(target, draw)

    root = place / "disk"
    if begun is None:
        root.mkdir()
    else:
        begun.rename(root)
    with powered(root, cut) as disk:
        for path in root.rglob("*"):
            disk.synced(str(path))
        run(root / "out", kind, seed=0)
    check_end(root / "out")
    return left


def go_on(cut: Path, kind: str) -> None:
    rows = read_rows(str(cut / "out"))
    assert rows == JOB.rows()[: len(rows)]
    with powered(cut, lambda disk, step: None):
        run(cut / "out", kind, seed=1)
    check_end(cut / "out")


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("luck", [None, 1, *(pytest.param(i, marks=pytest.mark.heavy) for i in range(2, 12))])
def test_the_power_is_cut_at_every_step(tmp_path: Path, kind: str, luck: int | None) -> None:
    """Without luck all that was not synced is gone, with it some of that is there."""
    left = cuts_of(tmp_path, kind, None if luck is None else random.Random(luck))
    assert set(left) >= set(CRASH_POINTS)
    for cuts in left.values():
        for cut in cuts:
            go_on(cut, kind)


def test_a_second_cut_while_going_on(tmp_path: Path) -> None:
    first = cuts_of(tmp_path, "csv", None)["segments.released"][0]
    (tmp_path / "second").mkdir()
    for cuts in cuts_of(tmp_path / "second", "csv", None, begun=first).values():
        for cut in cuts:
            go_on(cut, "csv")
