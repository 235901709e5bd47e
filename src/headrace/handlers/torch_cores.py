"""What handlers of PyTorch models have in common: how the cores are shared out, and what is given back.

PyTorch is imported inside the functions only.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.handlers.torch_devices import release_cache
from headrace.model.cores import given_threads
from headrace.model.handler import ModelHandler, ModelT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_MOST_AT_ONCE = 8
_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Of NVIDIA, of AMD, and of either under Windows."""


def on_cores(device: str) -> int:
    """Return how many batches at once suit a model on a device, of those whose `forward` only reads.

    On CPUs one thread a batch wins over all threads for one batch after another, since what a layer does to a batch is
    too little to be shared well: a small transformer was a quarter faster on two cores. PyTorch is not asked, since
    it takes a second to import.
    """
    on_cpu = device == "cpu" or (
        device == "auto" and sys.platform != "darwin" and not any(map(os.path.exists, _ACCELERATORS))
    )
    return min(given_threads(), _MOST_AT_ONCE) if on_cpu else 1


class _Cores:
    """PyTorch's threads for CPUs, shared out among the threads that ask models; the setting is the process's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.alone = threading.RLock()
        self.users = 0
        self.before = 0
        """How many threads PyTorch had before anybody shared them."""


_CORES = _Cores()


@contextmanager
def sharing_cores(batches: int) -> Iterator[None]:
    """Give PyTorch in this thread its share of the cores, while so many batches are computed at once."""
    import torch

    with _CORES.lock:
        if _CORES.users == 0:
            _CORES.before = torch.get_num_threads()
        _CORES.users += 1
    torch.set_num_threads(max(1, given_threads() // batches))
    try:
        yield
    finally:
        with _CORES.lock:
            _CORES.users -= 1
            if _CORES.users == 0:
                torch.set_num_threads(_CORES.before)


@contextmanager
def alone_on_cores() -> Iterator[None]:
    """Have all cores, and keep other threads that come here waiting: for models that one thread at a time may ask."""
    import torch

    with _CORES.alone:
        share = torch.get_num_threads()
        torch.set_num_threads(_CORES.before or share)
        try:
            yield
        finally:
            torch.set_num_threads(share)


class TorchHandler(ModelHandler[ModelT]):
    """A handler whose model is PyTorch's, on `device`."""

    device: str

    @property
    def only_reads(self) -> bool:
        """Whether a model's `forward` is known to change nothing in it, so that threads may call it at once."""
        return False

    def batches_at_once(self) -> int:
        return on_cores(self.device) if self.only_reads else 1

    def sharing_cores(self, batches: int) -> AbstractContextManager[None]:
        return sharing_cores(batches)

    def unload(self, model: ModelT) -> None:
        release_cache()
