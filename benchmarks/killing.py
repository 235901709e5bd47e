"""Running a program and killing one of its processes in earnest: SIGKILL, from outside."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from benchmarks.process import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

HANGS_SECS = 300.0
GONE_SECS = 10.0
MARK = "CHAOS_RUN"
"""Variable by which the processes of one run are told from all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended, and what had been done to it."""

    code: int
    errors: str
    killed_at: float | None
    """When one of its processes was killed; None where it ended first."""
    ended_at: float
    left_behind: int
    """Processes of the program that were still there long after its end."""


def run(
    command: Sequence[str],
    strike: Callable[[subprocess.Popen[bytes]], float | None] = lambda process: None,
    *,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program to its end. `strike` is called once it runs; it may kill what it likes, and says when it did.

    A program that goes on for five minutes hangs; it is killed then.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), **(env or {}), MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        killed_at = strike(process)
        try:
            process.wait(HANGS_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        ended_at = time.monotonic()
        left = _left_behind(mark)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return Ended(code=process.returncode, errors=text, killed_at=killed_at, ended_at=ended_at, left_behind=left)


def kill_main(process: subprocess.Popen[bytes]) -> float | None:
    """Kill the program itself; return when, None where it has ended."""
    if process.poll() is not None:
        return None
    at = time.monotonic()
    process.kill()
    return at


def kill_child(process: subprocess.Popen[bytes], draw: Random) -> float | None:
    """Kill one of the program's worker processes; return when, None where there is none."""
    try:
        victim = draw.choice(psutil.Process(process.pid).children(recursive=True))
        at = time.monotonic()
        victim.kill()
    except (psutil.NoSuchProcess, IndexError):
        return None
    return at


def _left_behind(mark: str) -> int:
    """Kill what a program has left, once it has had the time to go, and count it."""
    deadline = time.monotonic() + GONE_SECS
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return len(left)


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
    return found
