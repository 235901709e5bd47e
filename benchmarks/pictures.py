"""Pictures and a model of pictures for the benchmarks, made up but lifelike, and the same every time."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

SIZE = (1280, 960)
"""Width and height of a picture."""
MODEL_SIZE = (224, 224)
CLASSES = 10
CHANNELS = (32, 64, 128, 256)
"""Of the network's stages; each halves width and height."""


def write_pictures(folder: Path, *, count: int) -> Path:
    """Write so many JPEG files of about 350 KB under `folder`, once, and return the folder.

    Each is a piece of one large scene, turned or mirrored, with grain of its own, as a camera adds it: what a decoder
    has to do depends on how much detail there is.
    """
    from PIL import Image

    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rng = np.random.default_rng(0)
    width, height = SIZE
    scene = _scene(rng, 2 * width, 2 * height)
    for number in range(count):
        top, left = rng.integers(height), rng.integers(width)
        piece = scene[top : top + height, left : left + width]
        piece = piece[:, :: rng.choice([-1, 1])]
        grain = rng.integers(-9, 10, (height, width, 1), dtype=np.int16)
        picture = Image.fromarray(np.clip(piece + grain, 0, 255).astype(np.uint8))
        picture.save(unfinished / f"{number:05d}.jpg", quality=88)
    unfinished.rename(folder)
    return folder


def _scene(rng: np.random.Generator, width: int, height: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return smooth shapes of several sizes on top of one another."""
    from PIL import Image

    scene = np.full((height, width, 3), 128, dtype=np.float32)
    for cells, strength in ((6, 90), (24, 45), (96, 25), (384, 14)):
        coarse = rng.normal(size=(cells * height // width, cells, 3)).astype(np.float32)
        for channel in range(3):
            layer = Image.fromarray(coarse[..., channel]).resize((width, height), Image.Resampling.BICUBIC)
            scene[..., channel] += strength * np.asarray(layer)
    return scene.astype(np.int16)


def write_picture_model(path: Path) -> Path:
    """Write a convolutional network with fixed weights to `path` as ONNX, and return the path.

    It takes `pixels`, uint8 of (rows, height, width, 3) as decoded, and gives the `label` and the `score` of each.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []

    def weight(name: str, values: np.ndarray[Any, Any]) -> str:
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def convolution(x: str, channels_in: int, channels_out: int, stride: int) -> str:
        name = f"conv{len(weights)}"
        kernel = rng.normal(scale=(2 / (9 * channels_in)) ** 0.5, size=(channels_out, channels_in, 3, 3))
        x = node("Conv", [x, weight(f"{name}.weight", kernel)], name, strides=[stride] * 2, pads=[1] * 4)
        return node("Relu", [x], f"{name}.relu")

    x = node("Cast", ["pixels"], "floats", to=TensorProto.FLOAT)
    x = node("Transpose", [x], "planes", perm=[0, 3, 1, 2])
    x = node("Div", [x, weight("255", np.array(255.0))], "scaled")
    before = 3
    for channels in CHANNELS:
        x = convolution(x, before, channels, 2)
        x = node("Add", [x, convolution(x, channels, channels, 1)], f"{x}.sum")
        before = channels
    x = node("Flatten", [node("GlobalAveragePool", [x], "pooled")], "features")
    x = node(
        "Softmax", [node("MatMul", [x, weight("head", 0.05 * rng.normal(size=(before, CLASSES)))], "logits")], "shares"
    )
    node("ArgMax", [x], "label", axis=1, keepdims=0)
    node("ReduceMax", [x], "score", axes=[1], keepdims=0)

    width, height = MODEL_SIZE
    graph = helper.make_graph(
        nodes,
        "pictures",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["rows", height, width, 3])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info("score", TensorProto.FLOAT, ["rows"]),
        ],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path
