"""Scripts of users, run as processes of their own: started, killed, and looked at from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet

from headrace.engine.commit.status import read_status

SRC = str(Path(__file__).parents[2] / "src")
PATIENCE_SECS = 60.0
"""How long anything may take before a test gives up; no test waits for it when all is well."""


@dataclass(frozen=True)
class Ended:
    """How a process ended and what it said."""

    code: int
    out: str
    err: str


def write_script(text: str, path: str = "script.py") -> None:
    """Write a script into the current folder."""
    Path(path).write_text(textwrap.dedent(text))


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start Python with arguments in the current folder, in a session of its own, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_of(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end of a process."""
    try:
        out, err = process.communicate(timeout=PATIENCE_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"still running: {process.communicate()}") from None
    return Ended(process.returncode, out, err)


def run(*arguments: str, **env: str) -> Ended:
    """Run Python with arguments to its end."""
    return end_of(start(*arguments, **env))


def headrace(*arguments: str, **env: str) -> Ended:
    """Run the command line in a process of its own."""
    return run("-m", "headrace", *arguments, **env)


def until(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds; give up when the process that should bring it about has ended."""
    deadline = time.monotonic() + PATIENCE_SECS
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended first: {end_of(process)}")
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def safe_rows(folder: str = "out") -> int:
    """Count the rows of an output that no kill can take."""
    status = read_status(folder)
    return status.rows + status.waiting_rows


def rows_in(folder: str = "out") -> list[dict[str, Any]]:
    """Read every visible file of an output as a stranger to Headrace would, in the order of names."""
    rows: list[dict[str, Any]] = []
    for file in sorted(p for p in Path(folder).glob("*") if p.is_file()):
        if file.suffix == ".jsonl":
            text = file.read_bytes().decode("utf-8", errors="strict")
            assert text == "" or text.endswith("\n"), f"{file} ends in the middle of a line"
            rows += [json.loads(line) for line in text.splitlines()]
        elif file.suffix == ".parquet":
            rows += pyarrow.parquet.read_table(file).to_pylist()
        else:
            assert file.suffix == ".csv", f"what is {file}?"
            rows += pyarrow.csv.read_csv(file).to_pylist()
    return rows


def litter(folder: str = "out") -> set[str]:
    """Return what lies in an output folder beside parts, dead letters, and the record that documented runs keep."""
    documented = {".headrace/journal.sqlite", ".headrace/lock", ".headrace/job.json"}
    files = {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()}
    return {f for f in files - documented if not f.startswith(("part-", "_dead_letters/failures-"))}
