"""Whole processes, measured from outside: wall time, and the memory of a process and its children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
SAMPLE_SECS = 0.01


class ProgramFailedError(Exception):
    """A measured program failed, so there is nothing to measure."""


def wall_secs(command: Sequence[str], *, cwd: Path = ROOT) -> float:
    """Run a program to its end and return the seconds from start to exit.

    Raises:
        ProgramFailedError: it ended with an exit code other than 0; the message holds the end of its output.
    """
    began = time.perf_counter()
    output_of(command, cwd=cwd)
    return time.perf_counter() - began


def output_of(command: Sequence[str], *, cwd: Path = ROOT) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        ProgramFailedError: it ended with an exit code other than 0; the message holds the end of its output.
    """
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-3000:]
        raise ProgramFailedError(f"exit code {done.returncode}: {' '.join(command)}\n{tail}")
    return done.stdout


def peak_memory_mib(command: Sequence[str], *, cwd: Path = ROOT) -> float:
    """Run a program and return the largest sum of resident memory, in MiB, of it and all its children.

    Pages that processes share count once for each of them, so the figure is never too low. It is sampled every
    10 ms: a peak shorter than that may be missed.
    """
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, process_tree_bytes(process.pid))
        time.sleep(SAMPLE_SECS)
    if process.returncode != 0:
        raise ProgramFailedError(f"exit code {process.returncode}: {' '.join(command)}")
    return peak / 2**20


def headrace_command() -> list[str]:
    """Return how to call Headrace's CLI in this environment: the installed script, or the module without one."""
    script = Path(sys.executable).with_name("headrace")
    return [str(script)] if script.exists() else [sys.executable, "-m", "headrace"]


def process_tree_bytes(pid: int) -> int:
    """Return the resident memory of a process and all its children; 0 when it is gone."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            total += int(process.memory_info().rss)
    except psutil.Error:  # a process of the tree ended while we looked
        pass
    return total


def environment() -> dict[str, str]:
    """Return the environment that measured programs run in."""
    # A checkout that is not installed is measured as well as an installed one.
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
