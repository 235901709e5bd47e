"""torchvision beside a PyTorch that it was not built for, which is what package indexes give where there is no GPU.

The wheel of PyPI is built for CUDA. Beside a PyTorch for CPUs alone its own operators (boxes of detectors) cannot be
loaded, and importing it fails at the first one that it describes. Nothing that is tested here uses them: where they are
missing they are declared before torchvision is imported, so that the rest of it, which is Python, can be.

This folder is on the path of every process that tests start, and Python imports a module of this name by itself.
"""

import importlib.abc
import sys
import threading


class _Declaring(importlib.abc.MetaPathFinder):
    """Finds nothing; declares the operators when torchvision is about to be imported."""

    def __init__(self):
        self._declaring = threading.RLock()  # of threads that look for torchvision at once, the second has to wait
        self._begun = False

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            with self._declaring:
                if not self._begun:
                    self._begun = True
                    _declare()


def _declare():
    import importlib.util
    from pathlib import Path

    import torch

    if hasattr(torch, "declared_for_torchvision"):
        return
    spec = importlib.util.find_spec("torchvision")
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.declared_for_torchvision = declared  # declarations go when their library is collected


if not any(type(finder).__name__ == _Declaring.__name__ for finder in sys.meta_path):  # of another run of this file
    sys.meta_path.insert(0, _Declaring())
