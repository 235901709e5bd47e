"""Runs that are short of memory from beginning to end: slower, and the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import FakeModelHandler


@pytest.fixture(autouse=True)
def _no_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.memory.memory_of_tree", lambda workers: 2**60)
    monkeypatch.setattr("headrace.engine.memory.TICK_SECS", 0.001)
    monkeypatch.setattr("headrace.engine.read_stage.JOINED_BYTES", 1_000)


def numbers(folder: Path, files: int = 30) -> hr.Dataset:
    (folder / "in").mkdir()
    for i in range(files):
        lines = [json.dumps({"id": 100 * i + k}) for k in range(100)]
        (folder / "in" / f"{i:03}.jsonl").write_text("\n".join(lines) + "\n")
    return hr.read_json(str(folder / "in"))


def ids(folder: Path) -> list[int]:
    return [row["id"] for row in hr.read_json(str(folder)).iter_rows()]


def test_steps_a_model_and_two_outputs(tmp_path: Path) -> None:
    ds = numbers(tmp_path).map(lambda row: {**row, "half": row["id"] / 2})
    scored = ds.run_inference(FakeModelHandler(float), inputs="half", min_batch_size=64, concurrency=2)
    result = hr.run(
        scored.write_json(str(tmp_path / "a"), name="a"),
        ds.write_json(str(tmp_path / "b"), name="b"),
        memory_limit="1GB",
    )
    assert ids(tmp_path / "a") == ids(tmp_path / "b") == list(range(3_000))
    assert result.statistics.memory_pressure_secs > 0
    assert "because memory was short" in str(result.report())


def test_what_needs_the_order_of_the_input(tmp_path: Path) -> None:
    ds = numbers(tmp_path)
    assert [row["id"] for row in ds.take(250)] == list(range(250))
    shuffled = ds.random_shuffle(seed=1, buffer_rows=500)
    shuffled.write_json(str(tmp_path / "out")).run()
    assert sorted(ids(tmp_path / "out")) == list(range(3_000))
    assert ds.union(ds, ds.limit(70)).count() == 6_070


def test_fan_out_and_worker_processes(tmp_path: Path) -> None:
    def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [row, row]

    ds = numbers(tmp_path, files=5).flat_map(twice, concurrency=2, isolation="process")
    ds.write_json(str(tmp_path / "out")).run()
    assert ids(tmp_path / "out") == sorted([*range(500), *range(500)])
