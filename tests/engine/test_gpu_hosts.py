"""Models by key over several GPUs, which are made up: their processes take memory of the machine only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine import keyed_stage, nvml
from headrace.engine.gpu_hosts import GpuHosts
from headrace.engine.hosts import Hosts
from headrace.errors import PlanError
from headrace.handlers.onnx import OnnxModelHandler
from headrace.metrics.statistics import ModelStatistics
from headrace.model.inventory import Gpu, Inventory
from headrace.model.manager import ModelManager

GB = 10**9


class Seeing(hr.ModelHandler[Any]):
    """Answers with the GPU that its process sees."""

    def __init__(self, device: str | None = "auto") -> None:
        self.device = device

    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: None) -> list[str]:
        return [os.environ.get("CUDA_VISIBLE_DEVICES", "all")] * len(batch)


class Loaded:
    """A task that is loaded at once."""

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False

    def open(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def statistics(self) -> ModelStatistics:
        return ModelStatistics(handler="H", loads=1)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Make up two GPUs, on each of which a process has as much as the returned mapping says."""
    found = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="L4", memory_bytes=24 * GB) for n in range(2))
    monkeypatch.setattr(nvml, "inventory", lambda: Inventory(gpus=found))
    held = {"GPU-0": GB, "GPU-1": GB}
    monkeypatch.setattr(keyed_stage, "GpuMemory", lambda uuid: lambda pid: held[uuid])
    return held


def keyed_job(out: Path, budget: Any, *, keys: str = "abcdef", rows: int = 60, **settings: Any) -> hr.Job:
    keyed = hr.KeyedModelHandler({key: Seeing() for key in keys}, key="k")
    ds = hr.from_items([{"id": i, "k": keys[i % len(keys)]} for i in range(rows)])
    return ds.run_inference(keyed, inputs="id", memory_budget=budget, **settings).write_json(out)


def gpus_by_key(out: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for part in out.glob("part-*"):
        for line in part.read_text().splitlines():
            row = json.loads(line)
            found.setdefault(row["k"], set()).add(row["prediction"])
    return found


def test_each_model_belongs_to_one_gpu_and_takes_turns_there(two_gpus: dict[str, int], tmp_path: Path) -> None:
    job = keyed_job(tmp_path / "out", hr.MemoryBudget(gpu="2GB", cpu="1GB"))
    assert "of each GPU: 2GB" in job.explain()
    result = job.run(memory_limit="2GB")
    found = gpus_by_key(tmp_path / "out")
    assert {len(gpus) for gpus in found.values()} == {1}
    assert sorted(gpu for gpus in found.values() for gpu in gpus) == ["GPU-0"] * 3 + ["GPU-1"] * 3
    (manager,) = [stage.manager for stage in result.statistics.stages if stage.manager is not None]
    assert (manager.budget_bytes, manager.loads) == (4 * GB, 6)
    assert manager.swaps >= 2, "two of three are on each GPU at a time"
    assert 2 * GB <= manager.peak_bytes <= 4 * GB


def test_only_gpus_that_are_named_are_used(two_gpus: dict[str, int], tmp_path: Path) -> None:
    job = keyed_job(tmp_path / "out", hr.MemoryBudget(gpu={1: "20GB"}, cpu="1GB"), keys="ab")
    assert "placed on: GPU 1 (L4)\n" in job.explain()
    job.run(memory_limit="2GB")
    assert gpus_by_key(tmp_path / "out") == {"a": {"GPU-1"}, "b": {"GPU-1"}}


def test_a_model_that_proves_larger_than_its_gpus_budget_fails_its_rows(
    two_gpus: dict[str, int], tmp_path: Path
) -> None:
    two_gpus["GPU-1"] = 3 * GB
    keyed_job(tmp_path / "out", hr.MemoryBudget(gpu="2GB", cpu="1GB"), keys="ab").run(
        memory_limit="2GB", on_error="dead_letter"
    )
    assert gpus_by_key(tmp_path / "out") == {"a": {"GPU-0"}}
    letters = [line for file in (tmp_path / "out/_dead_letters").glob("*") for line in file.read_text().splitlines()]
    assert {json.loads(line)["row"]["k"] for line in letters} == {"b"}
    assert "and the memory budget for all models is 2.0 GB of GPU 1 (L4) and 500.0 MB of the" in letters[0]


def test_auto_is_of_gpus_where_models_take_them_and_of_the_machine_alone_elsewhere(
    two_gpus: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "placed on: GPU 0 (L4), GPU 1 (L4)" in keyed_job(tmp_path / "a", "auto").explain()
    monkeypatch.setattr(nvml, "inventory", Inventory)
    job = keyed_job(tmp_path / "b", "auto", keys="ab", rows=4)
    assert "placed on" not in job.explain()
    assert job.run().rows_written == 4


def test_gpus_that_are_not_there_are_told_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvml, "inventory", Inventory)
    with pytest.raises(PlanError, match="no NVIDIA GPU is found for them"):
        keyed_job(tmp_path / "out", hr.MemoryBudget(gpu="2GB")).run()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (OnnxModelHandler("model.onnx"), "gpu= is for the models of a KeyedModelHandler"),
        (hr.KeyedModelHandler({"a": Seeing("cpu")}, key="k"), "Seeing has device='cpu', and memory_budget= with gpu="),
    ],
)
def test_budgets_that_would_do_nothing_are_refused(handler: Any, message: str, tmp_path: Path) -> None:
    watch = {} if isinstance(handler, hr.KeyedModelHandler) else {"watch": str(tmp_path / "*.pkl")}
    with pytest.raises(PlanError, match=message):
        hr.range(3).run_inference(handler, memory_budget=hr.MemoryBudget(gpu="1GB"), **watch)


def test_models_go_where_the_fewest_are_and_stay() -> None:
    tasks: dict[str, list[Loaded]] = {}

    def hosts() -> Hosts:
        made: list[Loaded] = []

        def make(name: str) -> Any:
            made.append(Loaded(name))
            tasks.setdefault(name, []).append(made[-1])
            return made[-1]

        return Hosts(ModelManager(100, sizes=dict.fromkeys("abc", 60)), make)

    both = GpuHosts([hosts(), hosts()])
    both.want(["a", "b", "c"])
    with both.lease("a") as a, both.lease("b"):
        assert both.has_place("b")
        assert both.is_ready("a")
        assert not both.is_ready("c")
        assert both.victims("c") == ("a",), "the first GPU has two, and room for one"
        assert [task.name for task in both.tasks()] == ["a", "b"]  # type: ignore[attr-defined]
    with both.lease("c"):
        assert a.closed  # type: ignore[attr-defined]
    statistics = both.statistics()
    assert (statistics.budget_bytes, statistics.copies, statistics.loads, statistics.swaps) == (200, 2, 3, 1)
    done = both.model_statistics()
    assert done is not None
    assert done.loads == 3
    both.close()
    assert all(task.closed for made in tasks.values() for task in made)
