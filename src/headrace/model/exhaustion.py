"""Out of memory: told from other errors without importing any framework, and what can be freed then."""

from __future__ import annotations

import errno
import gc
import re
import sys

import pyarrow as pa

_CLASSES = {"OutOfMemoryError", "ResourceExhaustedError"}
"""torch (CUDA, XPU), CuPy; TensorFlow."""

_FRAMEWORKS = {"catboost", "jaxlib", "lightgbm", "onnxruntime", "openvino", "tensorflow", "torch", "xgboost"}
"""Whose errors are read; those that Python or users' code raises about a row may quote anything."""

_TEXTS = re.compile(
    r"(CUDA|HIP|XPU|MPS backend) out of memory"  # torch
    r"|CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"
    r"|DefaultCPUAllocator: (can't allocate|not enough) memory"  # torch on a CPU
    r"|BFCArena|Failed to allocate memory for requested buffer"  # onnxruntime
    r"|RESOURCE_EXHAUSTED|OOM when allocating"  # XLA (JAX, Keras), TensorFlow
    r"|std::bad_alloc|Cannot allocate memory"
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Say whether an error means that memory ran out, of the host or of a device.

    >>> is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB)"))
    True
    >>> is_out_of_memory(ValueError("the poem 'CUDA out of memory' has no rhymes"))
    False
    """
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if any(kind.__name__ in _CLASSES for kind in type(error).__mro__):
            return True
        native = isinstance(error, RuntimeError) or type(error).__module__.partition(".")[0] in _FRAMEWORKS
        if native and _TEXTS.search(str(error)):
            return True
        error = error.__cause__
    return False


def release_memory() -> None:
    """Free what is held for later use only: cycles, and caches of frameworks that are loaded."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is None or not hasattr(device, "empty_cache"):
            continue
        if torch.backends.mps.is_available() if name == "mps" else device.is_initialized():  # type: ignore[union-attr]
            device.empty_cache()
