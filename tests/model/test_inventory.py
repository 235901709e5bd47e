"""What a process may use of a machine's GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.inventory import Gpu, visible

FOUR = tuple(Gpu(index=n, uuid=f"GPU-{n}{n}-x", name="NVIDIA L4") for n in range(4))
MIXED = (*FOUR[:2], Gpu(index=2, uuid="GPU-a100", name="NVIDIA A100-SXM4-80GB"))


def seen(named: str | None, *, of: tuple[Gpu, ...] = FOUR, by_bus: bool = False) -> list[int]:
    return [gpu.index for gpu in visible(of, named, by_bus=by_bus).gpus]


@pytest.mark.parametrize(
    ("named", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2", [2]),
        (" 3, 0", [3, 0]),
        ("GPU-22-x,GPU-0", [2, 0]),
        ("GPU-", []),  # which of them is not said
        ("1,7,2", [1]),  # as with CUDA, what comes behind one that is not there is hidden
        ("1,1", [1]),
        ("MIG-GPU-1/2/3", []),
    ],
)
def test_what_cuda_hides_is_not_there(named: str | None, indices: list[int]) -> None:
    assert seen(named) == indices


def test_numbers_of_gpus_of_several_kinds_are_not_guessed() -> None:
    assert seen("2", of=MIXED) == []
    assert seen("2", of=MIXED, by_bus=True) == [2]
    assert seen("GPU-a100", of=MIXED) == [2]
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in visible(MIXED, "2").missing


def test_a_machine_without_gpus_is_told_as_such_whatever_is_named() -> None:
    assert visible((), "0,1").missing == "no NVIDIA GPU is found on this machine"


@given(st.lists(st.integers(0, 5), max_size=6))
def test_no_gpu_is_there_twice(numbers: list[int]) -> None:
    found = seen(",".join(map(str, numbers)))
    assert found == numbers[: len(found)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("kind", "name", "fits"),
    [
        ("nvidia-l4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("nvidia-tesla-t4", "Tesla T4", True),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-80GB", True),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-40GB", False),
        ("nvidia-rtx-4090", "NVIDIA GeForce RTX 4090", True),
        ("tpu-v5e", "NVIDIA L4", False),
        ("nvidia", "NVIDIA L4", True),
    ],
)
def test_kinds_are_known_by_the_names_that_clouds_give_them(kind: str, name: str, fits: bool) -> None:
    assert Gpu(index=0, uuid="GPU-0", name=name).is_kind(kind) is fits
