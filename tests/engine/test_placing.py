"""Models of whole runs, put on GPUs that are not there: what a process is told of them is all that can be seen here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine import nvml
from headrace.engine.budget import Budget
from headrace.engine.placing import place_models
from headrace.errors import PlanError
from headrace.model.inventory import Gpu, Inventory
from headrace.plan.graph import Plan
from headrace.plan.stages import fuse

GB = 10**9


class Seeing(hr.ModelHandler[Any]):
    """Answers with the GPUs that its process sees, and the process."""

    def __init__(self, device: str | None = None, model: str = "model.txt") -> None:
        self.device, self.model = device, model

    def load_model(self) -> None:
        return None

    def model_files(self) -> list[str]:
        return [self.model] if self.model != "model.txt" else []

    def run_inference(self, batch: Any, model: None) -> list[str]:
        return [f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}@{os.getpid()}"] * len(batch)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    found = Inventory(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA L4") for n in range(2)))
    monkeypatch.setattr(nvml, "inventory", lambda: found)
    return found


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "inventory", Inventory)


def asked(handler: Any = None, *, rows: int = 40, **settings: Any) -> hr.Dataset:
    return hr.range(rows).run_inference(handler or Seeing(), inputs="id", batch_size=2, **settings)


def seen(ds: hr.Dataset) -> dict[str, set[str]]:
    """Return which processes saw what."""
    found: dict[str, set[str]] = {}
    for row in ds.iter_rows():
        gpus, pid = row["prediction"].split("@")
        found.setdefault(gpus, set()).add(pid)
    return found


def test_each_copy_sees_its_own_gpu_and_there_is_one_for_each(two_gpus: Inventory) -> None:
    job = asked(num_gpus=1)
    found = seen(job)
    assert set(found) <= {"GPU-0", "GPU-1"}
    assert all(len(pids) == 1 for pids in found.values())
    (node,) = [step for step in _explained(job) if step["node"] == "RunInference"]
    assert node["details"]["placed on"] == "GPU 0 (NVIDIA L4), GPU 1 (NVIDIA L4)"
    assert node["details"]["copies of the model"] == "2, in worker processes, one each"


def _explained(ds: hr.Dataset) -> list[dict[str, Any]]:
    import json

    steps: list[dict[str, Any]] = json.loads(ds.explain("json"))["steps"]
    return steps


def test_reports_tell_where_models_were_put(two_gpus: Inventory, tmp_path: Path) -> None:
    result = asked(num_gpus=0.5, model_copies=1).write_json(tmp_path / "out").run()
    assert "Seeing on GPU 0 (NVIDIA L4): loaded in" in str(result.report())


class OnCpu(Seeing):
    """Does not use what it has, as PyTorch that was built without CUDA."""

    class Model:
        device = "cpu"

    def load_model(self) -> Any:
        return self.Model()


@pytest.mark.parametrize(
    ("num_gpus", "told"), [(1, "on cpu, though it has GPU 0 (NVIDIA L4): loaded"), (0, "on cpu: loaded")]
)
def test_a_model_that_does_not_use_its_gpu_is_told_of(
    two_gpus: Inventory, tmp_path: Path, num_gpus: int, told: str
) -> None:
    job = asked(OnCpu(), num_gpus=num_gpus, model_copies=1).write_json(tmp_path / "out")
    assert f"OnCpu {told}" in str(job.run().report())


@pytest.mark.parametrize(("settings", "sees"), [({"num_gpus": 2}, "GPU-0,GPU-1"), ({"num_gpus": 0}, "")])
def test_a_copy_sees_as_many_as_it_asks_for(two_gpus: Inventory, settings: Any, sees: str) -> None:
    found = seen(asked(**settings))
    assert set(found) == {sees}
    assert str(os.getpid()) not in found[sees]


def test_copies_of_a_handler_that_takes_the_first_gpu_take_turns_unasked(two_gpus: Inventory) -> None:
    spread = asked(Seeing("auto"), isolation="process", concurrency=2)
    assert set(seen(spread)) <= {"GPU-0", "GPU-1"}
    assert "placed on: GPU 0 (NVIDIA L4), GPU 1 (NVIDIA L4)" in spread.explain()
    own = asked(Seeing(), isolation="process")
    assert set(seen(own)) == {os.environ.get("CUDA_VISIBLE_DEVICES", "all")}
    assert "placed on" not in own.explain()


def test_models_by_key_take_turns_over_the_gpus(two_gpus: Inventory) -> None:
    keyed = hr.KeyedModelHandler({name: Seeing("auto") for name in "abc"} | {"d": Seeing("cuda:1")}, key="k")
    ds = hr.from_items([{"id": i, "k": "abcd"[i % 4]} for i in range(8)])
    rows = ds.run_inference(keyed, inputs="id", isolation="process").take(8)
    by_key = {row["k"]: row["prediction"].split("@")[0] for row in rows}
    assert {by_key[key] for key in "abc"} == {"GPU-0", "GPU-1"}
    assert by_key["d"] == os.environ.get("CUDA_VISIBLE_DEVICES", "all")


def test_a_model_that_changes_has_its_copies_placed(two_gpus: Inventory, tmp_path: Path) -> None:
    (tmp_path / "v1.txt").write_text("1")
    ds = asked(Seeing(model=str(tmp_path / "v1.txt")), num_gpus=1, watch=str(tmp_path / "v*.txt"))
    assert set(seen(ds)) <= {"GPU-0", "GPU-1"}
    assert "copies of the model: 2, in worker processes, one each" in ds.explain()


def test_steps_that_share_a_model_ask_for_one_gpu_together(two_gpus: Inventory, tmp_path: Path) -> None:
    jobs = [
        asked(Seeing(), num_gpus=2, large_model=True, name=name).write_json(tmp_path / name).node for name in ("a", "b")
    ]
    plan, placed = place_models(Plan(jobs), memory_limit_bytes=GB)
    assert {step: str(one) for step, one in placed.items()} == dict.fromkeys(
        "ab", "GPU 0 (NVIDIA L4) + GPU 1 (NVIDIA L4)"
    )
    assert [node.copies for node in plan.nodes if type(node).__name__ == "RunInference"] == [1, 1]


def test_a_machine_is_looked_at_only_where_that_says_anything() -> None:
    def probe() -> Inventory:
        raise AssertionError("nobody asked")

    job = asked(Seeing("auto"), min_ram="1MB").run_inference(Seeing(), inputs="id", isolation="process", output="b")
    plan = Plan([job.write_json("out").node])
    assert place_models(plan, memory_limit_bytes=GB, probe=probe) == (plan, {})


def test_what_a_machine_lacks_is_refused_before_anything_is_written_and_explained_all_the_same(
    no_gpu: None, tmp_path: Path
) -> None:
    job = asked(accelerator="nvidia-l4", name="net").write_json(tmp_path / "out")
    with pytest.raises(PlanError, match="step 'net' asks for num_gpus=1 of kind 'nvidia-l4', and no NVIDIA GPU"):
        job.run()
    assert not (tmp_path / "out").exists()
    assert "placed on: nothing on this machine: step 'net' asks for" in job.explain()


def test_memory_that_a_model_needs_is_refused_or_kept_for_it(tmp_path: Path) -> None:
    job = asked(min_ram="3GB", name="net").write_json(tmp_path / "out")
    with pytest.raises(PlanError, match=r"min_ram= asks for 3.0 GB for step 'net', and this run has 731.6 MB"):
        job.run(memory_limit="1GB")

    def held(**settings: Any) -> int:
        stages = fuse(Plan([asked(**settings).write_json("out").node]), cores=2)
        return Budget.of(GB, stages=stages).held_bytes

    assert held(min_ram="600MB") < held(min_ram="1MB") == held()
    assert held(min_ram="250MB", model_copies=2) < held(min_ram="250MB")
