"""torchvision beside a PyTorch that it was not built for, which is what package indexes give where there is no GPU.

The wheel of PyPI is built for CUDA. Beside a PyTorch for CPUs alone its own operators (boxes of detectors) cannot be
loaded, and importing it fails at the first one that it describes. Nothing that is tested here uses them: where they are
missing they are declared, so that the rest of torchvision, which is Python, can be imported.
"""

import functools


@functools.cache
def make_importable() -> None:
    """Declare the operators that torchvision describes when it is imported, unless it brings them itself."""
    import importlib.util
    from pathlib import Path

    import torch

    spec = importlib.util.find_spec("torchvision")
    assert spec is not None
    assert spec.origin is not None
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(declared)


_kept: list[object] = []
"""Declarations go when their library is collected."""
