"""Which device a loaded model says it is on, for reports."""

from __future__ import annotations

import sys
from typing import Any


def told_device(model: Any) -> str:
    """Return what a model tells: its `device`, that of its first parameter, or what its session runs on; else nothing.

    >>> class Net:
    ...     device = "cuda:0"
    >>> told_device(Net()), told_device([])
    ('cuda:0', '')
    """
    try:
        return _named(getattr(model, "device", None)) or _of_parameters(model) or _of_session(model)
    except Exception:  # whatever a model is, it must not end a run by how it answers here
        return ""


def allocated_bytes() -> int:
    """Return what PyTorch has of all GPUs that this process sees, for use now or later; 0 where it has not begun."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_reserved(number) for number in range(torch.cuda.device_count()))


def _named(device: Any) -> str:
    """Return a device as text; an attribute of that name may be anything."""
    return str(device) if isinstance(device, str) or type(device).__name__ == "device" else ""


def _of_parameters(model: Any) -> str:
    parameters = getattr(model, "parameters", None)
    return _named(getattr(next(iter(parameters()), None), "device", None)) if callable(parameters) else ""


def _of_session(model: Any) -> str:
    """Return the provider that ONNX Runtime asks first: where CUDA does not start, that is the CPU without a word."""
    providers = getattr(model, "get_providers", None)
    return str(providers()[0]) if callable(providers) else ""
