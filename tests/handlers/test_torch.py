from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, ModelLoadError, PlanError, StageError
from headrace.handlers.torch import TorchModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.heavy

BATCH = pa.record_batch({"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 4.0], "n": [1, 2, 3], "text": ["x", "yy", "zzz"]})


def linear(width: int = 2) -> torch.nn.Module:
    """A module whose answer is ten times the sum of its inputs."""
    import torch

    module = torch.nn.Linear(width, 1)
    with torch.no_grad():
        module.weight.fill_(10.0)
        module.bias.fill_(0.0)
    return module


def predict(handler: TorchModelHandler, batch: pa.RecordBatch = BATCH, **spec: Any) -> list[Any]:
    return from_column(Predictor(InferenceSpec(handler=handler, **spec), "s").predict(batch).columns["prediction"])


SUMS = [[15.0], [22.5], [70.0]]


@pytest.mark.parametrize("source", ["state_dict", "checkpoint", "safetensors", "torchscript", "exported", "model"])
def test_every_source_gives_the_modules_own_answers(source: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    module, path = linear(), str(tmp_path / "net.pt")
    options: dict[str, Any] = {"model_class": torch.nn.Linear, "model_params": {"in_features": 2, "out_features": 1}}
    if source in ("state_dict", "checkpoint"):
        weights: Any = module.state_dict()
        torch.save(weights if source == "state_dict" else {"epoch": 3, "state_dict": weights}, path)
        options["state_dict_path"] = path
    elif source == "safetensors":
        save_file(module.state_dict(), path)
        options["safetensors_path"] = path
    elif source == "torchscript":
        torch.jit.trace(module, torch.zeros(1, 2)).save(path)
        options = {"torchscript_path": path}
    elif source == "exported":
        path = str(tmp_path / "net.pt2")
        shapes = ({0: torch.export.Dim("rows")},)
        torch.export.save(torch.export.export(module, (torch.zeros(2, 2),), dynamic_shapes=shapes), path)
        options = {"exported_path": path}
    else:
        options = {"model": module}
    handler = TorchModelHandler(**options, device="cpu")
    handler.check()
    assert predict(handler, inputs=("a", "b")) == SUMS
    assert handler.model_id == ("Linear" if source == "model" else Path(path).name)


def test_a_mapping_gives_keyword_tensors_and_inference_args_are_keywords() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
            return (left.sum(dim=1) + right) * factor

    handler = TorchModelHandler(model=Net(), device="cpu")
    inputs = {"left": ("a", "b"), "right": "a"}
    assert predict(handler, inputs=inputs, inference_args={"factor": 2.0}) == [5.0, 8.5, 20.0]


def test_several_outputs_become_a_dict() -> None:
    import torch

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x > 1.5

    answers = predict(TorchModelHandler(model=Two(), device="cpu"), inputs="a")
    assert answers[1] == {"output_0": 4.0, "output_1": True}


def test_floats_take_the_modules_dtype_and_integers_stay() -> None:
    import torch

    class Kind(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> list[str]:
            return [str(x.dtype)] * len(x)

    assert predict(TorchModelHandler(model=Kind(), device="cpu"), inputs="a")[0] == "torch.float32"
    assert predict(TorchModelHandler(model=Kind(), device="cpu"), inputs="n")[0] == "torch.int64"
    assert predict(TorchModelHandler(model=Kind(), device="cpu", dtype="bfloat16"), inputs="a")[0] == "torch.bfloat16"
    assert (
        predict(TorchModelHandler(model=Kind(), device="cpu", input_dtype="float32"), inputs="n")[0] == "torch.float32"
    )


def test_bfloat16_answers_come_out_as_floats() -> None:
    answers = predict(TorchModelHandler(model=linear(), device="cpu", dtype="bfloat16"), inputs=("a", "b"))
    assert answers == SUMS


def test_the_module_runs_in_evaluation_and_inference_mode() -> None:
    import torch

    class Mode(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[bool]:
            return [self.training or not torch.is_inference_mode_enabled()] * len(x)

    assert predict(TorchModelHandler(model=Mode().train(), device="cpu"), inputs="a") == [False] * 3


def test_inference_fn_gets_rows_and_texts_as_they_are() -> None:
    import torch

    def lengths(batch: Any, model: Any, device: torch.device, inference_args: dict[str, Any]) -> Any:
        assert device.type == "cpu"
        words = [row["text"] for row in batch] if isinstance(batch, list) else list(batch)
        return model(torch.tensor([[float(len(word))] for word in words])) * inference_args.get("factor", 1)

    handler = TorchModelHandler(model=linear(1), device="cpu", inference_fn=lengths)
    assert predict(handler) == [[10.0], [20.0], [30.0]]
    assert predict(handler, inputs="text", inference_args={"factor": 2}) == [[20.0], [40.0], [60.0]]


def test_rows_and_texts_need_an_inference_fn() -> None:
    handler = TorchModelHandler(model=linear(), device="cpu")
    with pytest.raises(PlanError, match="takes tensors, not rows: name the columns with inputs="):
        predict(handler)
    texts = pa.record_batch({"v": [["a", "b"], ["c"]]})
    with pytest.raises(StageError, match="a PyTorch module was given text, and a model takes numbers; make numbers"):
        predict(handler, texts, inputs="v")
    with pytest.raises(PlanError, match="takes numbers, not str: pass inference_fn="):
        predict(handler, inputs="text")


@pytest.mark.parametrize("odd", [[3.0], None])
def test_a_row_of_another_shape_fails_alone(odd: list[float] | None) -> None:
    batch = pa.record_batch({"v": [[1.0, 2.0], odd, [4.0, 5.0]]})
    handler = TorchModelHandler(model=linear(), device="cpu")
    prediction = Predictor(InferenceSpec(handler=handler, inputs="v"), "s", "dead_letter").predict(batch)
    assert list(prediction.errors) == [1]
    assert prediction.columns["prediction"].to_pylist() == [[30.0], [90.0]]


def test_a_wrong_number_of_features_says_what_torch_says() -> None:
    with pytest.raises(StageError, match="shapes cannot be multiplied"):
        predict(TorchModelHandler(model=linear(3), device="cpu"), inputs=("a", "b"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of state_dict_path, .*, and was given none"),
        ({"torchscript_path": "a.pt", "exported_path": "b.pt2"}, "was given torchscript_path and exported_path"),
        ({"state_dict_path": "a.pt"}, "state_dict_path holds weights only; pass the module's class as model_class="),
        ({"model_class": dict, "torchscript_path": "a.pt"}, "torchscript_path is whole; leave model_class= out"),
        ({"torchscript_path": "s3://bucket/a.pt"}, "carries code of whoever wrote it.*trust_remote_code=True"),
        ({"model": "net.pt"}, "model= takes a module, not str; for a file pass one of the paths"),
        ({"torchscript_path": "no/such/file.pt"}, "there is no model file no/such/file.pt"),
    ],
)
def test_check_finds_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadraceError, match=words):
        TorchModelHandler(**options).check()


@pytest.mark.parametrize(
    ("source", "content", "words"),
    [
        ("state_dict_path", b"", "is not a file of torch.save .*: it seems to be an empty file"),
        ("safetensors_path", pickle.dumps([1]), "is not a safetensors file: it seems to be a pickle"),
        ("torchscript_path", b"\x08\x08\x12\x07tf2onnx", "is not a TorchScript file: it seems to be an ONNX model"),
        ("exported_path", b"<html>", "is not a torch.export program: it seems to be a web page"),
    ],
)
def test_files_of_the_wrong_kind(source: str, content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(content)
    needs_class = source in ("state_dict_path", "safetensors_path")
    handler = TorchModelHandler(linear if needs_class else None, **{source: str(path)}, device="cpu")
    with pytest.raises(ModelLoadError, match=words):
        handler.load_model()


def test_a_module_in_place_of_its_class() -> None:
    with pytest.raises(PlanError, match="takes the class Linear itself, not a module made of it"):
        TorchModelHandler(linear(), state_dict_path="net.pt").check()


def test_a_file_of_another_source_names_that(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    path = str(tmp_path / "net.pt")
    torch.save(linear().state_dict(), path)
    for source in ("torchscript_path", "exported_path"):
        with pytest.raises(ModelLoadError, match=r"seems to be .*; pass it as state_dict_path= with model_class="):
            TorchModelHandler(**{source: path}, device="cpu").load_model()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("device", "words"), [("gpu", "no device 'gpu'; use 'auto'"), ("cuda", "finds no CUDA here")])
def test_a_device_that_is_not_there(device: str, words: str) -> None:
    import torch

    if torch.cuda.is_available() and device == "cuda":
        pytest.skip("there is one")
    with pytest.raises(PlanError, match=words):
        TorchModelHandler(model=linear(), device=device).load_model()


def test_state_dicts_are_loaded_without_running_their_code(tmp_path: Path) -> None:
    import torch

    torch.save(linear(), tmp_path / "whole.pt")
    with pytest.raises(ModelLoadError, match=r"^[^\n]*as torch\.save\(model\) writes them[^\n]*weights_only=False\)$"):
        TorchModelHandler(linear, state_dict_path=str(tmp_path / "whole.pt"), device="cpu").load_model()


def test_weights_of_another_module_say_which_keys(tmp_path: Path) -> None:
    import torch

    torch.save({"other": torch.zeros(1)}, tmp_path / "net.pt")
    with pytest.raises(ModelLoadError, match="(?s)cannot load .*Missing key.*weight"):
        TorchModelHandler(linear, state_dict_path=str(tmp_path / "net.pt"), device="cpu").load_model()


def test_weights_by_url(tmp_path: Path) -> None:
    import torch

    with fsspec.open("memory://net.pt", "wb") as file:
        torch.save(linear().state_dict(), file)
    handler = TorchModelHandler(linear, state_dict_path="memory://net.pt", cache_dir=str(tmp_path), device="cpu")
    assert predict(handler, inputs=("a", "b")) == SUMS


def test_compiled_module() -> None:
    import torch

    handler = TorchModelHandler(model=linear(), device="cpu", compile=True)
    assert isinstance(handler.load_model(), torch._dynamo.OptimizedModule)


def test_an_unknown_dtype() -> None:
    with pytest.raises(PlanError, match="'float31' is no dtype of PyTorch"):
        TorchModelHandler(model=linear(), device="cpu", dtype="float31").load_model()


def test_readonly_columns_are_not_written_through() -> None:
    import torch

    class InPlace(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    batch = pa.record_batch({"v": np.array([1.0, 2.0], "float32")})
    assert predict(TorchModelHandler(model=InPlace(), device="cpu"), batch, inputs="v") == [2.0, 3.0]
    assert batch.column(0).to_pylist() == [1.0, 2.0]
