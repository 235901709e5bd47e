"""The inputs that ONNX files declare: as ONNX Runtime tells them, and nothing of files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from headrace.handlers.onnx_file import declared_inputs

TYPES = [
    *(
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
    ),
    *(TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    *(TensorProto.BOOL, TensorProto.STRING),
]
SHAPES: list[list[Any]] = [[], [3], [None, 3], ["rows", 1], ["n", "length", 300], [1, 3, 224, 224], [None, 2**40]]


def save(path: Path, inputs: list[Any], weights: list[Any] = ()) -> str:  # type: ignore[assignment]
    outputs = [
        helper.make_tensor_value_info(f"{one.name} again", one.type.tensor_type.elem_type, None) for one in inputs
    ]
    nodes = [helper.make_node("Identity", [one.name], [f"{one.name} again"]) for one in inputs]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializer=weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3), path)
    return str(path)


def told_by_the_runtime(path: str) -> list[tuple[str, str, tuple[Any, ...]]]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [(one.name, one.type, tuple(one.shape)) for one in session.get_inputs()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_type_and_shape_is_told_as_the_runtime_does(tmp_path: Path, shape: list[Any]) -> None:
    inputs = [helper.make_tensor_value_info(f"input {i} ž", kind, shape) for i, kind in enumerate(TYPES)]
    path = save(tmp_path / "m.onnx", inputs)
    found = [(one.name, one.type, one.shape) for one in declared_inputs(path)]
    assert found == told_by_the_runtime(path)
    assert len(found) == len(TYPES)


def test_weights_among_the_inputs_are_passed_over(tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("w", "x")]
    weights = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    (found,) = declared_inputs(save(tmp_path / "m.onnx", inputs, [weights]))
    assert (found.name, found.shape) == ("x", (3,))


def test_weights_are_not_read(tmp_path: Path) -> None:
    """A file with a hole of 8 GB in place of weights is told at once."""
    weights = numpy_helper.from_array(np.zeros(4, dtype=np.float32), "w")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("w", "x")]
    model = onnx.load(save(tmp_path / "m.onnx", inputs, [weights]))
    whole = model.graph.SerializeToString()
    raw = model.graph.initializer[0].SerializeToString()
    at = whole.index(raw)
    hole = 2**33
    tensor = raw[: raw.index(weights.raw_data) - 1] + varint(hole)
    head = whole[: at - 1] + varint(len(tensor) + hole) + tensor
    tail = whole[at + len(raw) :]
    with open(tmp_path / "large.onnx", "wb") as file:
        file.write(b"\x3a" + varint(len(head) + hole + len(tail)) + head)
        file.seek(hole, 1)
        file.write(tail)
    (found,) = declared_inputs(str(tmp_path / "large.onnx"))
    assert found.name == "x"


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def test_files_that_are_no_models_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("no model at all " * 100)
    for name in ("empty", "text", "missing"):
        assert declared_inputs(str(tmp_path / name)) == []


@given(data=st.data())
def test_damaged_models_are_left_to_who_loads_them(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "m.onnx"
    save(path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])])
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=5)):
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    for one in declared_inputs(str(path)):  # whatever it says, it ends
        assert isinstance(one.name, str)
