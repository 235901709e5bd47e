from __future__ import annotations

import errno
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.model.exhaustion import is_out_of_memory, release_memory


def named(module: str, name: str, base: type[Exception] = Exception) -> type[Exception]:
    """Make a class as a framework has it, so that no framework is needed."""
    return type(name, (base,), {"__module__": module})


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        named("torch", "OutOfMemoryError", RuntimeError)("CUDA out of memory. Tried to allocate 20.00 GiB."),
        named("cupy.cuda.memory", "OutOfMemoryError")("Out of memory allocating 1 bytes"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.90 GB, other allocations: 384.00 KB)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        named("onnxruntime.capi.onnxruntime_pybind11_state", "RuntimeException")(
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. "
            "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Available memory of 0"
        ),
        named("onnxruntime.capi.onnxruntime_pybind11_state", "Fail")(
            "Failed to allocate memory for requested buffer of size 6442450944"
        ),
        named("tensorflow.python.framework.errors_impl", "ResourceExhaustedError")("OOM when allocating tensor"),
        named("jaxlib.xla_extension", "XlaRuntimeError", RuntimeError)("RESOURCE_EXHAUSTED: Out of memory"),
        named("jax.errors", "JaxRuntimeError", RuntimeError)("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
        named("tensorflow.python.framework.errors_impl", "InternalError")("RESOURCE_EXHAUSTED: Out of memory"),
        named("xgboost.core", "XGBoostError", ValueError)("std::bad_alloc: cudaErrorMemoryAllocation: out of memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_ran_out_is_told_from_other_errors(error: Exception) -> None:
    assert is_out_of_memory(error)
    wrapped = ValueError("the model failed")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shape mismatch"),
        RuntimeError("the user ran out of memory cards"),
        ValueError("CUDA out of memory is no language"),
        hr.RowError("CUDA out of memory"),
        OSError(errno.ENOSPC, "No space left on device"),
        KeyError("BFCArena"),
    ],
    ids=repr,
)
def test_what_only_speaks_of_memory_is_not_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_allocations_that_numpy_and_arrow_refuse_are_recognised() -> None:
    for allocate in (lambda: np.empty(2**46), lambda: pa.allocate_buffer(2**50)):
        with pytest.raises(Exception) as caught:
            allocate()
        assert is_out_of_memory(caught.value)


def test_freeing_memory_imports_no_framework() -> None:
    release_memory()
    code = (
        "import sys; from headrace.model.exhaustion import release_memory; release_memory();"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'tensorflow')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Device:
    """A module of torch's for one kind of device."""

    def __init__(self, *, there: bool) -> None:
        self.there, self.emptied = there, 0

    def is_initialized(self) -> bool:
        return self.there

    is_available = is_initialized

    def empty_cache(self) -> None:
        self.emptied += 1


def test_caches_of_a_loaded_framework_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = type(sys)("torch")
    torch.cuda, torch.xpu, torch.mps = Device(there=True), Device(there=False), Device(there=True)  # type: ignore[attr-defined]
    torch.backends = type(sys)("torch.backends")  # type: ignore[attr-defined]
    torch.backends.mps = Device(there=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    release_memory()
    assert [device.emptied for device in (torch.cuda, torch.xpu, torch.mps)] == [1, 0, 1]  # type: ignore[attr-defined]
