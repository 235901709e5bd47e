"""memory_limit="1GB" holds, whatever the input: each run in a process of its own, whose peak the system has counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 1_000_000_000


def phase(name: str, kind: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tests.engine.memory_job", name, kind, str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def taken(kind: str, folder: Path, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(phase("run", kind, folder, *arguments)))


@pytest.mark.parametrize(
    ("source", "kind", "sink"),
    [
        ("csv", "text", "csv"),
        ("csv", "noise", "parquet"),
        ("json", "noise", "json"),
        ("json", "text", "parquet"),
        ("parquet", "noise", "parquet"),
        ("parquet", "noise", "csv"),
    ],
)
def test_a_cell_of_200_mb(tmp_path: Path, source: str, kind: str, sink: str) -> None:
    phase("make", "giant", tmp_path, source, kind)
    run = taken("giant", tmp_path, source, kind, sink)
    assert run["rows"] == 2_000
    assert run["peak_bytes"] < LIMIT_BYTES


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_a_cell_of_200_mb_in_worker_processes(tmp_path: Path, source: str) -> None:
    phase("make", "giant", tmp_path, source, "noise")
    run = taken("giant", tmp_path, source, "noise", "parquet", "process")
    assert run["rows"] == 2_000
    assert run["peak_bytes"] < LIMIT_BYTES


def test_a_fast_source_and_a_slow_sink(tmp_path: Path) -> None:
    run = taken("slow", tmp_path)
    assert run["rows"] == 6_000_000
    assert run["peak_bytes"] < LIMIT_BYTES


def test_one_row_becomes_10_000(tmp_path: Path) -> None:
    run = taken("fan", tmp_path)
    assert run["rows"] == 1_000_000
    assert run["peak_bytes"] < LIMIT_BYTES


def test_very_many_tiny_files(tmp_path: Path) -> None:
    phase("make", "tiny", tmp_path, "100000")
    run = taken("tiny", tmp_path, "100000")
    assert run["rows"] == 100_000
    assert run["peak_bytes"] < LIMIT_BYTES
