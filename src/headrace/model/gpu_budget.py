"""How much of each GPU models may take that take turns, and how one number stands for its memory and the machine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.metrics.quantities import amount, nbytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model.inventory import Gpu

AUTO_SHARE = 0.9
"""Of a GPU's memory, where nobody says how much models may take of it: drivers and contexts need some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """What models may have together on one GPU, and of the machine's memory in the processes that they have there.

    A model counts for the larger of its two shares. So what counts for no more than `gpu_bytes` together keeps within
    both bounds, whatever models are made of.

    >>> from headrace.model.inventory import Gpu
    >>> share = GpuShare(gpu=Gpu(index=0, uuid="GPU-a"), gpu_bytes=1000, cpu_bytes=500)
    >>> share.counted(300, 100), share.counted(300, 200)
    (300, 400)
    """

    gpu: Gpu
    gpu_bytes: int
    cpu_bytes: int

    def counted(self, gpu_bytes: int, cpu_bytes: int) -> int:
        """Return what a model counts for, in bytes of the GPU."""
        return max(gpu_bytes, -(-cpu_bytes * self.gpu_bytes // self.cpu_bytes))

    def __str__(self) -> str:
        return f"{amount(self.gpu_bytes)} of {self.gpu} and {amount(self.cpu_bytes)} of the machine's memory"


def gpu_shares(given: Any, gpus: Sequence[Gpu], *, cpu_bytes: int) -> tuple[GpuShare, ...]:
    """Return what there is on each GPU that models may be put on; none where they do not use any.

    `given` is what `MemoryBudget(gpu=…)` says. The machine's memory is divided equally.

    Raises:
        PlanError: it is no number of bytes, more than a GPU has, or of a GPU that is not there.
    """
    if given == "auto":
        gpus = [gpu for gpu in gpus if gpu.memory_bytes]
    if given is None or (given == "auto" and not gpus):
        return ()
    if not gpus:
        raise PlanError(
            "memory_budget= says how much of each GPU models may take, and no NVIDIA GPU is found for them; leave gpu="
            " out"
        )
    named = _by_gpu(given, gpus)
    each = cpu_bytes // len(named)
    return tuple(GpuShare(gpu=gpu, gpu_bytes=_checked(one, gpu), cpu_bytes=each) for gpu, one in named.items())


def check_gpu_budget(given: Any) -> None:
    """Raise where it is nothing that `gpu_shares` could take on any machine.

    Raises:
        PlanError: says how it is written.
    """
    for one in given.values() if isinstance(given, Mapping) else [given]:
        if one is not None and one != "auto":
            _bytes(one)
    if isinstance(given, Mapping) and not given:
        raise PlanError("memory_budget: gpu={} names no GPU; leave it out, or write it like '10GB' or {0: '10GB'}")


def _by_gpu(given: Any, gpus: Sequence[Gpu]) -> dict[Gpu, Any]:
    if not isinstance(given, Mapping):
        return dict.fromkeys(gpus, given)
    found: dict[Gpu, Any] = {}
    for name, one in given.items():
        fits = [gpu for gpu in gpus if str(name) in (str(gpu.index), gpu.uuid)]
        if not fits:
            there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
            raise PlanError(f"memory_budget: there is no GPU {name!r} for these models; there are {there}")
        found[fits[0]] = one
    return found


def _checked(given: Any, gpu: Gpu) -> int:
    if given == "auto":
        return int(AUTO_SHARE * gpu.memory_bytes)
    nbytes = _bytes(given)
    if gpu.memory_bytes and nbytes > gpu.memory_bytes:
        raise PlanError(f"memory_budget gives models {amount(nbytes)} of {gpu}, which has {amount(gpu.memory_bytes)}")
    return nbytes


def _bytes(given: Any) -> int:
    try:
        return nbytes_of(given)
    except ValueError as error:
        raise PlanError(f"memory_budget: gpu: {error}") from error
