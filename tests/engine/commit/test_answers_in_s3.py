"""Jobs whose answers are durable by row and whose output is in S3: killed, and gone on with on an empty disk."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.commit.answer_mirror import decode
from headrace.engine.commit.crash import VARIABLE
from tests.engine.test_memories import asked, script
from tests.s3 import Store, serving

pytestmark = pytest.mark.heavy
ROWS = 60


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        yield store


class Machines:
    """Runs one job, each time on a machine whose disk holds the input and nothing else."""

    def __init__(self, folder: Path, sinks: int = 1) -> None:
        self._folder, self._runs = folder, 0
        self._command = [*script(folder, ROWS), str(sinks), "s3://bucket/"]

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        self._runs += 1
        disk = self._folder / f"disk{self._runs}"
        disk.mkdir()
        settings = {**os.environ, "TMPDIR": str(disk), **environment}
        return subprocess.Popen(self._command, cwd=self._folder, env=settings)

    def run(self, **environment: str) -> int:
        code = self.start(**environment).wait(timeout=100)
        if code == 0:
            assert list((self._folder / f"disk{self._runs}").iterdir()) == [], "nothing is left on a machine"
        return code

    @property
    def asked(self) -> list[int]:
        return asked(self._folder / "calls")


def kept(store: Store) -> int:
    """Count the rows whose answers are in the store."""
    names = [name for name in store.names() if "/.headrace/answers/" in name]
    pages = [page for name in names for page in decode(store.get(name)) or []]
    return len({key for page in pages for key in page.keys})


def check_end(store: Store, sinks: int = 1) -> None:
    for sink in range(sinks):
        parts = sorted(name for name in store.names() if name.startswith(f"out{sink}/part-"))
        rows = [json.loads(line) for name in parts for line in store.get(name).splitlines()]
        assert [(row["id"], row["prediction"]) for row in rows] == [(i, 2 * i) for i in range(ROWS)]
    hidden = [name for name in store.names() if "/.headrace/" in name]
    assert all("/.headrace/log/" in name for name in hidden), "answers go with the end of the job"


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("sinks", [1, 2])
def test_what_was_in_the_store_at_a_kill_is_not_asked_for_again(
    store: Store, tmp_path: Path, nth: int, sinks: int
) -> None:
    machines = Machines(tmp_path, sinks)
    assert machines.run(**{VARIABLE: f"answers.kept:{nth}", "SECS": "0.1", "HOLD": "1"}) == -signal.SIGKILL
    before, safe = len(machines.asked), kept(store)
    assert 0 < safe <= before
    assert machines.run() == 0
    assert len(machines.asked) - before == ROWS - safe
    check_end(store, sinks)


def test_a_run_that_is_told_to_stop_keeps_all_its_answers(store: Store, tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    process = machines.start(SECS="0.05", HOLD="1")
    while len(machines.asked) < 12:
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) != 0
    assert kept(store) == len(machines.asked) < ROWS
    assert machines.run() == 0
    assert sorted(machines.asked) == list(range(ROWS))
    check_end(store)


def test_kills_at_random_moments(store: Store, tmp_path: Path) -> None:
    machines, dice = Machines(tmp_path), random.Random(1)
    for _ in range(4):
        process = machines.start(SECS="0.05", HOLD="1")
        target = len(machines.asked) + dice.randrange(2, 20)
        while process.poll() is None and len(machines.asked) < target:
            os.sched_yield()
        process.kill()
        process.wait()
    before, safe = len(machines.asked), kept(store)
    assert machines.run() == 0
    assert len(machines.asked) - before == ROWS - safe
    check_end(store)


def test_begun_afresh_the_answers_go_too(store: Store, tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    assert machines.run(**{VARIABLE: "answers.kept", "HOLD": "1"}) == -signal.SIGKILL
    before = len(machines.asked)
    assert kept(store) > 0
    assert machines.run(AFRESH="1") == 0
    assert len(machines.asked) == before + ROWS
    check_end(store)
