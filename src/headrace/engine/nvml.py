"""What NVIDIA's driver tells of GPUs. It is asked through its own library, so that no framework has to be loaded."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from headrace.model.inventory import Gpu, Inventory, visible

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
_MOST_PROCESSES = 256
_NOT_KNOWN = 2**64 - 1


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("nbytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class GpuMemory:
    """Measures what processes have on one GPU, as far as the driver knows them.

    In a container it may know them by other numbers, or none at all.
    """

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._nvml = library or _library()
        self._device = ctypes.c_void_p()
        self._known = (
            self._nvml is not None
            and hasattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3")
            and self._nvml.nvmlInit_v2() == 0  # for as long as this process lasts: it is asked many times a second
            and self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._device)) == 0
        )

    def __call__(self, pid: int) -> int:
        """Return the bytes of one process; 0 where that is not known."""
        if not self._known:
            return 0
        count, found = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
        if self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), found) != 0:
            return 0
        known = [one.nbytes for one in found[: count.value] if one.pid == pid and one.nbytes != _NOT_KNOWN]
        return sum(known)


def inventory(library: Any = None) -> Inventory:
    """Return the GPUs that CUDA would see from this process; none where there is no driver."""
    gpus = installed_gpus(library or _library())
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), by_bus=by_bus)


def installed_gpus(nvml: Any) -> tuple[Gpu, ...]:
    """Return all GPUs of the machine, in the order of the bus; `nvml` is the driver's library, None where it is not."""
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return ()
    try:
        count = ctypes.c_uint(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        found = (_gpu(nvml, index) for index in range(count.value))
        return tuple(gpu for gpu in found if gpu is not None)
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu | None:
    """Return one GPU; None where the driver has lost it."""
    device, memory = ctypes.c_void_p(), _Memory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
        return None
    uuid, name = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.create_string_buffer(_TEXT_BYTES)
    if nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_TEXT_BYTES)) != 0:
        return None
    nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT_BYTES))
    nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    return Gpu(
        index=index,
        uuid=uuid.value.decode(errors="replace"),
        name=name.value.decode(errors="replace") or "GPU",
        memory_bytes=memory.total,
    )


def _library() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None
