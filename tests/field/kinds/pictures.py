"""Kinds of handlers for pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.handlers.huggingface import HuggingFaceModelHandler
from headrace.handlers.timm import TimmModelHandler
from tests.field.kinds.kind import Kind, Model
from tests.handlers import tiny_transformers

FIXED = "a picture model answers tensors, whose rows are alike, and as many as it is given"


def picture(i: int) -> dict[str, Any]:
    """A picture of a shape and content of its own."""
    return {"image": np.random.default_rng(i).integers(0, 256, (20 + i % 5, 30 - i % 3, 3), dtype=np.uint8)}


def timm_model(folder: Path) -> Model:
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    module = timm.create_model("test_resnet", num_classes=4)
    torch.nn.init.normal_(module.get_classifier().weight)
    save_file(module.state_dict(), folder / "net.safetensors")
    handler = TimmModelHandler("test_resnet", checkpoint_path=folder / "net.safetensors", num_classes=4, device="cpu")
    return Model(handler=handler, inputs="image")


def vision_transformer(folder: Path) -> Model:
    import torch

    torch.manual_seed(0)
    tiny_transformers.save_vit(folder, "Model")
    return Model(handler=HuggingFaceModelHandler(folder, device="cpu"), inputs="image")


TIMM = Kind(
    name="timm",
    needs=("timm",),
    make=timm_model,
    row=picture,
    bad={"image": np.zeros((2, 2, 2, 2), dtype=np.uint8)},
    error=("RowError|ValueError", r"shape \(2, 2, 2, 2\) is no picture"),
    tolerance=1e-5,
    ragged=FIXED,
    squeezed=FIXED,
    miscounting=FIXED,
)
VISION_TRANSFORMER = Kind(
    name="huggingface, pictures",
    needs=("transformers",),
    make=vision_transformer,
    row=picture,
    bad={"image": np.zeros((2, 2, 2, 2), dtype=np.uint8)},
    error=("RowError|ValueError", r"shape \(2, 2, 2, 2\) is no picture"),
    tolerance=1e-5,
    ragged=FIXED,
    squeezed=FIXED,
    miscounting=FIXED,
)

KINDS = (TIMM, VISION_TRANSFORMER)
