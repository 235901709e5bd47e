"""PyTorch's devices and dtypes by name, and arrays on their way to a device; shared by all handlers of PyTorch models.

PyTorch is imported inside the functions only. What concerns CUDA does nothing on other devices.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import PlanError
from headrace.metrics.quantities import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

_OF_THREAD = threading.local()


def device_of(name: str, *, needed_by: str) -> Any:
    """Return the `torch.device` of a name; "auto" is CUDA where it is there, then MPS, then the CPU.

    Raises:
        PlanError: there is no such device, here or at all.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise PlanError(
            f"{needed_by}: there is no device {name!r}; use 'auto', 'cpu', 'cuda', 'cuda:1', 'mps'"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise PlanError(f"{needed_by}: device={name!r}, but PyTorch finds no CUDA here; use 'auto' or 'cpu'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = count(torch.cuda.device_count(), "GPU")
        raise PlanError(f"{needed_by}: device={name!r}, but PyTorch finds {there} here, counted from cuda:0")
    return device


def dtype_of(name: str, *, needed_by: str) -> Any:
    """Return the `torch.dtype` of a name, such as "bfloat16" or "torch.float16".

    Raises:
        PlanError: there is none.
    """
    import torch

    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise PlanError(f"{needed_by}: {name!r} is no dtype of PyTorch; such are float32, bfloat16, float16")
    return dtype


def tensor_on(device: Any, array: NDArray[Any], dtype: Any = None) -> Any:
    """Return an array of numbers as a tensor on a device, of `dtype` if that is given; it may share the array's memory.

    To CUDA the bytes go from pinned memory without waiting, in the order of the current stream. They are cast where
    that makes less to copy: before it to a narrower dtype, behind it to a wider one.
    """
    import torch

    array = np.ascontiguousarray(array)  # tensors know no negative strides
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if dtype is not None and dtype.itemsize <= tensor.dtype.itemsize:
        tensor = tensor.to(dtype)
    if device.type == "cuda":
        tensor = tensor.pin_memory().to(device, non_blocking=True)
    else:
        tensor = tensor.to(device)
    return tensor if dtype is None else tensor.to(dtype)


def tensors_on(device: Any, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return named arrays of numbers as tensors on a device."""
    return {name: tensor_on(device, array) for name, array in arrays.items()}


@contextmanager
def stream_of_thread(device: Any) -> Iterator[None]:
    """Run what is inside on a CUDA stream of this thread's own, and wait for that alone; elsewhere do nothing.

    So where a model has several batches in flight (`concurrency=2`) one is copied while another is computed. The model
    has to be on the device when the first one begins: see `settle`.
    """
    if device.type != "cuda":
        yield
        return
    import torch

    cuda: Any = torch.cuda
    streams: dict[Any, Any] = _OF_THREAD.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = cuda.Stream(device)
    with cuda.stream(streams[device]):
        yield
        streams[device].synchronize()  # the answers will be read on another stream


def settle(device: Any) -> None:
    """Wait until a model that was just loaded is on its device, since threads use it on streams of their own."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def release_cache() -> None:
    """Give back what PyTorch holds of GPUs' memory for later use."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
