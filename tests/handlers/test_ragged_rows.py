"""Rows of different lengths and sizes through ONNX and PyTorch models: any batch size gives the same answers, a bad row
costs itself alone, and a wrong number of answers is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import headrace as hr
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers.torch import TorchModelHandler

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = [3, 1, 5, 4, 1, 2, 1]
ROWS = [{"id": i, "tokens": list(range(1, length + 1))} for i, length in enumerate(LENGTHS)]
SUMS = [length * (length + 1) // 2 for length in LENGTHS]
PADDED = hr.PadSequences(value=1_000, mask="mask")
"""Padding that is no answer's if the mask is heeded."""


def onnx_sums(folder: Path, name: str = "sums.onnx", *, dropping: bool = False) -> str:
    """Write a model that sums `ids` where `mask` is 1; `dropping` leaves out the answers that are 0."""
    of = {"ids": (TensorProto.INT64, ["n", "l"]), "mask": (TensorProto.INT64, ["n", "l"])}
    nodes = [
        helper.make_node("Mul", ["ids", "mask"], ["there"]),
        helper.make_node("ReduceL1", ["there"], ["sums"], axes=[1], keepdims=0),
    ]
    if dropping:
        nodes.append(helper.make_node("Cast", ["sums"], ["kept"], to=TensorProto.BOOL))
        nodes.append(helper.make_node("Compress", ["sums", "kept"], ["answers"], axis=0))
    output = helper.make_tensor_value_info("answers" if dropping else "sums", TensorProto.INT64, ["m"])
    inputs = [helper.make_tensor_value_info(key, *its) for key, its in of.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [output])
    path = folder / name
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


def torch_sums(*, dropping: bool = False) -> Any:
    import torch

    class Sums(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            sums = (ids * mask).sum(dim=1)
            return sums[sums != 0] if dropping else sums

    return Sums()


def handler_of(kind: str, folder: Path, *, collate: Any = PADDED, dropping: bool = False) -> hr.ModelHandler[Any]:
    if kind == "onnx":
        return OnnxModelHandler(onnx_sums(folder, dropping=dropping), collate=collate)
    return TorchModelHandler(model=torch_sums(dropping=dropping), device="cpu", collate=collate)


KINDS = ["onnx", pytest.param("torch", marks=pytest.mark.heavy)]


def answers(rows: list[dict[str, Any]], handler: hr.ModelHandler[Any], **how: Any) -> Any:
    return hr.from_items(rows).run_inference(handler, inputs={"ids": "tokens"}, model_id_column=None, **how)


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_rows_in_a_batch_changes_nothing(kind: str, tmp_path: Path) -> None:
    for size in (1, 2, 3, 7):
        ds = answers(ROWS, handler_of(kind, tmp_path), batch_size=size)
        assert ds.take(10) == [{**row, "prediction": found} for row, found in zip(ROWS, SUMS, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_like_length_go_together_and_padding_is_told(kind: str, tmp_path: Path) -> None:
    rows = [{"id": i, "tokens": [1] * (1 + i % 2 * 63)} for i in range(600)]
    ds = answers(rows, handler_of(kind, tmp_path), max_batch_weight=1_024)
    result = ds.write_json(tmp_path / "out").run()
    assert [row["prediction"] for row in written(tmp_path / "out")] == [len(row["tokens"]) for row in rows]
    (model,) = [stage.model for stage in result.statistics.stages if stage.model is not None]
    assert model.padding < 0.25, "half of it were padding in the order of the input"
    assert 0 < model.mean_batch_weight <= 1_024


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_cannot_be_padded_costs_itself_alone(kind: str, tmp_path: Path) -> None:
    rows = [*ROWS, {"id": 7, "tokens": list(range(30))}, {"id": 8, "tokens": None}, {"id": 9, "tokens": [4]}]
    handler = handler_of(kind, tmp_path, collate=hr.PadSequences(mask="mask", length=8))
    result = answers(rows, handler, batch_size=10).write_json(tmp_path / "out").run(on_error="dead_letter")
    assert [row["prediction"] for row in written(tmp_path / "out")] == [*SUMS, 4]
    letters = written(tmp_path / "out" / "_dead_letters")
    assert [(letter["row"]["id"], letter["error_type"]) for letter in letters] == [(7, "ValueError"), (8, "ValueError")]
    assert "length 30 does not fit into length=8" in letters[0]["message"]
    assert result.failed == 2


@pytest.mark.parametrize("kind", KINDS)
def test_too_few_answers_are_never_shifted(kind: str, tmp_path: Path) -> None:
    rows = [*ROWS[:3], {"id": 99, "tokens": [0, 0]}, *ROWS[3:]]
    handler = handler_of(kind, tmp_path, dropping=True)
    answers(rows, handler, batch_size=8).write_json(tmp_path / "out").run(on_error="dead_letter")
    assert [row["prediction"] for row in written(tmp_path / "out")] == SUMS
    (letter,) = written(tmp_path / "out" / "_dead_letters")
    assert letter["row"]["id"] == 99
    assert "answered 0 times for 1 row" in letter["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_collation_the_option_is_named(kind: str, tmp_path: Path) -> None:
    masked = [{**row, "mask": [1] * len(row["tokens"])} for row in ROWS]
    ds = hr.from_items(masked).run_inference(
        handler_of(kind, tmp_path, collate=None), inputs={"ids": "tokens", "mask": "mask"}, batch_size=7
    )
    alike = ds.take(10)
    assert [row["prediction"] for row in alike] == SUMS, "halved until rows have one length"


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["pad", "group"])
def test_pictures_of_different_sizes_keep_their_order(how: Any) -> None:
    import torch

    class Brightness(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image.flatten(1).sum(dim=1) + (0 if how == "pad" else 1_000_000 * len(image))

    shapes = [(2, 3), (4, 4), (2, 3), (1, 9)]
    rows = [{"image": np.full((*shape, 3), i + 1, np.uint8)} for i, shape in enumerate(shapes)]
    handler = TorchModelHandler(model=Brightness(), device="cpu", collate=hr.FitPictures(how))
    ds = hr.from_items(rows).run_inference(handler, inputs={"image": "image"}, batch_size=4)
    sums = [int(row["image"].sum(dtype=np.int64)) for row in rows]
    counts = [0] * 4 if how == "pad" else [2, 1, 2, 1]
    expected = [total + 1_000_000 * count for total, count in zip(sums, counts, strict=True)]
    assert [row["prediction"] for row in ds.take(4)] == expected


def test_a_pipeline_file_may_name_a_collation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.spec.handlers import make_spec_handler

    path = onnx_sums(tmp_path)
    handler = make_spec_handler(f"onnx:{path}", {"collate": {"pad_sequences": {"mask": "mask"}}})
    assert [row["prediction"] for row in answers(ROWS, handler).take(10)] == SUMS
