"""What models may take of GPUs together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ModelTooLargeError, PlanError
from headrace.model.gpu_budget import GpuShare, check_gpu_budget, gpu_shares
from headrace.model.inventory import Gpu
from headrace.model.manager import ModelManager

GB = 10**9
TWO = tuple(Gpu(index=n, uuid=f"GPU-{n}x", name="L4", memory_bytes=24 * GB) for n in (2, 5))


def bytes_of(budget: Any) -> dict[int, tuple[int, int]]:
    return {one.gpu.index: (one.gpu_bytes, one.cpu_bytes) for one in gpu_shares(budget, TWO, cpu_bytes=4 * GB)}


@pytest.mark.parametrize(
    ("budget", "shares"),
    [
        (None, {}),
        ("10GB", {2: (10 * GB, 2 * GB), 5: (10 * GB, 2 * GB)}),
        (7, {2: (7, 2 * GB), 5: (7, 2 * GB)}),
        ("auto", {2: (21_600_000_000, 2 * GB), 5: (21_600_000_000, 2 * GB)}),
        ({5: "8GB"}, {5: (8 * GB, 4 * GB)}),
        ({"GPU-5x": "8GB", "2": "auto"}, {5: (8 * GB, 2 * GB), 2: (21_600_000_000, 2 * GB)}),
    ],
)
def test_budgets_are_of_each_gpu_or_of_those_named(budget: Any, shares: dict[int, tuple[int, int]]) -> None:
    assert bytes_of(budget) == shares


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("25GB", r"gives models 25.0 GB of GPU 2 \(L4\), which has 24.0 GB"),
        ({0: "1GB"}, r"there is no GPU 0 for these models; there are 2 \(GPU-2x\), 5 \(GPU-5x\)"),
        ("lots", "memory_budget: gpu: 'lots' is no number of bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused(budget: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        bytes_of(budget)


def test_without_gpus_only_what_was_found_by_itself_is_let_go() -> None:
    assert gpu_shares("auto", (), cpu_bytes=GB) == ()
    assert gpu_shares("auto", [Gpu(index=0, uuid="GPU-0")], cpu_bytes=GB) == ()  # the driver does not say how large
    with pytest.raises(PlanError, match="no NVIDIA GPU is found for them; leave gpu= out"):
        gpu_shares("1GB", (), cpu_bytes=GB)


@pytest.mark.parametrize("budget", ["lots", 0, {}, {0: "lots"}, True])
def test_what_no_machine_could_keep_is_told_when_it_is_written(budget: Any) -> None:
    with pytest.raises(PlanError, match="memory_budget: gpu"):
        check_gpu_budget(budget)


@given(
    st.integers(1, 10**12),
    st.integers(1, 10**12),
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), max_size=8),
)
def test_models_that_count_for_no_more_than_the_budget_keep_within_both_memories(
    gpu_bytes: int, cpu_bytes: int, models: list[tuple[int, int]]
) -> None:
    share = GpuShare(gpu=TWO[0], gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes)
    taken = []
    for model in models:
        if sum(share.counted(*one) for one in [*taken, model]) <= gpu_bytes:
            taken.append(model)
    assert sum(gpu for gpu, _ in taken) <= gpu_bytes
    assert sum(cpu for _, cpu in taken) <= cpu_bytes


def test_a_model_too_large_for_its_gpu_is_told_by_its_share() -> None:
    (share,) = gpu_shares({5: "8GB"}, TWO, cpu_bytes=4 * GB)
    manager = ModelManager(share.gpu_bytes, sizes={"a": share.counted(GB, 6 * GB)}, whole=str(share))
    with pytest.raises(ModelTooLargeError, match=r"150 % of it, and .* is 8.0 GB of GPU 5 \(L4\) and 4.0 GB of the ma"):
        manager.check("a")
