"""Asking NVIDIA's driver, of which there is a stand-in here: the real one needs a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from headrace.engine import nvml
from headrace.model.inventory import Gpu


class Driver:
    """Answers as libnvidia-ml does: a status, and values written where the caller says."""

    def __init__(self, names: list[str], *, lost: tuple[int, ...] = (), broken: bool = False) -> None:
        self.names, self.lost, self.broken, self.open = names, lost, broken, 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 9 if self.broken else 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.names)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.value = index.value + 1000
        return 15 if index.value in self.lost else 0

    def nvmlDeviceGetUUID(self, device: Any, text: Any, size: Any) -> int:
        text.value = f"GPU-{device.value}".encode()
        return 0

    def nvmlDeviceGetName(self, device: Any, text: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(text)
        text.value = self.names[device.value - 1000].encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        memory._obj.total = 24 * 10**9
        return 0


def test_gpus_are_told_with_names_and_memory_and_the_driver_is_let_go() -> None:
    driver = Driver(["NVIDIA L4", "Tesla T4", "NVIDIA L4"], lost=(1,))
    found = nvml.installed_gpus(driver)
    assert found == (
        Gpu(index=0, uuid="GPU-1000", name="NVIDIA L4", memory_bytes=24 * 10**9),
        Gpu(index=2, uuid="GPU-1002", name="NVIDIA L4", memory_bytes=24 * 10**9),
    )
    assert driver.open == 0


def test_without_a_driver_that_works_there_are_none() -> None:
    assert nvml.installed_gpus(None) == nvml.installed_gpus(Driver(["L4"], broken=True)) == ()


def test_only_what_this_process_sees_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert [gpu.index for gpu in nvml.inventory(Driver(["L4", "L4"])).gpus] == [1]
    assert nvml.inventory(Driver(["L4", "T4"])).gpus == ()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [gpu.index for gpu in nvml.inventory(Driver(["L4", "T4"])).gpus] == [1]


class Busy(Driver):
    """Knows which process has how much."""

    def __init__(self, held: dict[int, int], *, status: int = 0) -> None:
        super().__init__(["L4"])
        self.held, self.status = held, status

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        return 0 if uuid == b"GPU-1000" else 2

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, found: Any) -> int:
        assert count._obj.value == len(found)
        for place, (pid, nbytes) in zip(found, self.held.items(), strict=False):
            place.pid, place.nbytes = pid, nbytes
        count._obj.value = len(self.held)
        return self.status


def test_what_a_process_has_on_a_gpu_is_measured_where_the_driver_knows_it() -> None:
    driver = Busy({7: 3 * 10**9, 8: 10**9, 9: 2**64 - 1})
    measure = nvml.GpuMemory("GPU-1000", driver)
    assert [measure(pid) for pid in (7, 8, 9, 10)] == [3 * 10**9, 10**9, 0, 0]
    assert nvml.GpuMemory("GPU-other", driver)(7) == 0
    assert nvml.GpuMemory("GPU-1000", Busy({7: 1}, status=7))(7) == 0
    assert nvml.GpuMemory("GPU-1000", Driver(["L4"]))(7) == 0  # an old driver


@pytest.mark.skipif(nvml._library() is not None, reason="there is a driver here")
def test_without_a_driver_nothing_is_known_of_processes() -> None:
    assert nvml.GpuMemory("GPU-1000")(7) == 0
