"""What a machine has for models: its GPUs, and which of them this process may use."""

from __future__ import annotations

import re
from dataclasses import dataclass

VENDOR_WORDS = frozenset({"nvidia", "tesla", "geforce", "quadro", "rtx"})
"""Words that name no kind: clouds say "nvidia-tesla-t4" and "nvidia-l4", drivers "Tesla T4" and "NVIDIA L4"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, as the driver tells of it.

    >>> gpu = Gpu(index=1, uuid="GPU-5c0b", name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * 10**9)
    >>> str(gpu), gpu.is_kind("nvidia-a100-80gb"), gpu.is_kind("l4")
    ('GPU 1 (NVIDIA A100-SXM4-80GB)', True, False)
    """

    index: int
    """Its number among all of the machine, in the order of the bus, as nvidia-smi counts."""
    uuid: str
    name: str = "GPU"
    memory_bytes: int = 0

    def is_kind(self, kind: str) -> bool:
        """Whether it is of the kind that a hint names: all words of that are in its name, makers' aside."""
        return _words(kind) <= _words(self.name)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs that models may be put on.

    >>> Inventory().missing
    'no NVIDIA GPU is found on this machine'
    """

    gpus: tuple[Gpu, ...] = ()
    missing: str = "no NVIDIA GPU is found on this machine"
    """Why there are no more."""


def visible(gpus: tuple[Gpu, ...], named: str | None, *, by_bus: bool = False) -> Inventory:
    """Return what CUDA would see of a machine's GPUs, in its order; `named` is CUDA_VISIBLE_DEVICES.

    CUDA counts the fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID (`by_bus`), so that on a machine with GPUs of
    several kinds a bare number says nothing. As with CUDA, the list ends at the first that is not known.

    >>> two = tuple(Gpu(index=n, uuid=f"GPU-{n}b") for n in range(2))
    >>> [gpu.index for gpu in visible(two, "1,GPU-0").gpus], visible(two, "MIG-7").gpus
    ([1, 0], ())
    """
    if named is None:
        return Inventory(gpus=gpus)
    numbered = gpus if by_bus or len({gpu.name for gpu in gpus}) <= 1 else ()
    found: list[Gpu] = []
    for word in named.split(","):
        fits = [gpu for gpu in _named(word.strip(), gpus, numbered) if gpu not in found]
        if len(fits) != 1:
            break
        found += fits
    missing = (
        f"CUDA_VISIBLE_DEVICES={named!r} leaves {len(found)} of the {len(gpus)} GPUs of this machine (parts of GPUs"
        " are not counted; where GPUs are of several kinds name them by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID)"
    )
    return Inventory(gpus=tuple(found), missing=missing if gpus else Inventory().missing)


def _named(word: str, gpus: tuple[Gpu, ...], numbered: tuple[Gpu, ...]) -> list[Gpu]:
    if word.isdigit():
        return [gpu for gpu in numbered if gpu.index == int(word)]
    return [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word)]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower())) - VENDOR_WORDS
