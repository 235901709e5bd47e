from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import PlanError
from headrace.handlers import registry
from headrace.handlers.catboost import CatBoostModelHandler
from headrace.handlers.function import FunctionModelHandler
from headrace.handlers.huggingface import HuggingFaceModelHandler, HuggingFacePipelineModelHandler
from headrace.handlers.keras import KerasModelHandler
from headrace.handlers.keras_hub import KerasHubModelHandler
from headrace.handlers.lightgbm import LightGBMModelHandler
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers.registry import KINDS, installed, make_handler
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.handlers.tensorflow import TensorFlowModelHandler
from headrace.handlers.torch import TorchModelHandler
from headrace.handlers.xgboost import XGBoostModelHandler

STEPS = """
import headrace.model.handler as handler

class Upper(handler.ModelHandler):
    def __init__(self, times=1):
        self.times = times
    def load_model(self):
        return str.upper
    def run_inference(self, batch, model):
        return [model(row["text"]) * self.times for row in batch]

made = Upper(3)
number = 7
def shout(batch):
    return [row["text"] + "!" for row in batch]
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name of its own, since modules stay imported."""
    name = f"steps_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.mark.parametrize(
    ("model", "handler_class", "file"),
    [
        ("sklearn:m.pkl", SklearnModelHandler, "m.pkl"),
        ("onnx:dir/m.onnx", OnnxModelHandler, "dir/m.onnx"),
        ("sklearn:s3://bucket/m.skops", SklearnModelHandler, "s3://bucket/m.skops"),
        ("torchscript:m.pt", TorchModelHandler, "m.pt"),
        ("torch-export:m.pt2", TorchModelHandler, "m.pt2"),
        ("xgboost:m.ubj", XGBoostModelHandler, "m.ubj"),
        ("lightgbm:m.txt", LightGBMModelHandler, "m.txt"),
        ("catboost:m.cbm", CatBoostModelHandler, "m.cbm"),
        ("keras:m.keras", KerasModelHandler, "m.keras"),
        ("keras-hub:models/gemma", KerasHubModelHandler, "models/gemma"),
        ("tensorflow:models/net", TensorFlowModelHandler, "models/net"),
    ],
)
def test_kinds_with_a_path(model: str, handler_class: type, file: str) -> None:
    handler = make_handler(model)
    assert type(handler) is handler_class
    assert list(handler.model_files()) == [file]


def test_kinds_with_a_task_and_a_folder() -> None:
    handler = make_handler("hf-pipeline:ner:s3://bucket/names", device="cpu")
    assert isinstance(handler, HuggingFacePipelineModelHandler)
    assert (handler.task, handler.model, handler.device) == ("ner", "s3://bucket/names", "cpu")
    plain = make_handler("hf:./names", pooling="cls")
    assert isinstance(plain, HuggingFaceModelHandler)
    assert (plain.model, plain.pooling) == ("./names", "cls")


def test_options_reach_the_handler() -> None:
    handler = make_handler("sklearn:m.pkl", method="predict_proba", proba_column=1)
    assert isinstance(handler, SklearnModelHandler)
    assert (handler.method, handler.proba_column) == ("predict_proba", 1)


def test_python_finds_classes_instances_and_functions_in_the_current_folder(steps: str) -> None:
    rows = [{"text": "a"}]
    handler = make_handler(f"python:{steps}:Upper", times=2)
    assert handler.run_inference(rows, handler.load_model()) == ["AA"]
    made = make_handler(f"python:{steps}:made")
    assert made.run_inference(rows, made.load_model()) == ["AAA"]
    function = make_handler(f"python:{steps}:shout")
    assert isinstance(function, FunctionModelHandler)
    assert function.run_inference(rows, function.load_model()) == ["a!"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("sklaern:m.pkl", "'sklaern' is no kind of model; did you mean 'sklearn'.*Kinds: sklearn, onnx, "),
        ("model.onnx", "does not say what kind of model it is; write kind:path, such as onnx:model.onnx"),
        ("s3://bucket/m.pt", "'s3' is no kind of model"),
        ("sklearn:", "names no model; write it like sklearn:model.pkl"),
        ("hf-pipeline:ner", "'hf-pipeline:ner' names one part of two; write it like hf-pipeline:TASK:FOLDER"),
        ("python:steps", "python:steps names no class"),
        ("python:no_such_module:Upper", "there is no module 'no_such_module' in "),
        ("python:STEPS:Uper", "has no 'Uper'; did you mean 'Upper'"),
        ("python:STEPS:number", "is a int; a ModelHandler class or a function is needed"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest(model: str, words: str, steps: str) -> None:
    with pytest.raises(PlanError, match=words):
        make_handler(model.replace("STEPS", steps))


def test_wrong_options_are_refused_with_the_nearest(steps: str) -> None:
    with pytest.raises(PlanError, match="SklearnModelHandler has no option 'metod'; did you mean 'method'"):
        make_handler("sklearn:m.pkl", metod="predict")
    with pytest.raises(PlanError, match="Upper has no option 'tims'; did you mean 'times'"):
        make_handler(f"python:{steps}:Upper", tims=1)


def test_modules_that_break_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "breaks_at_import.py").write_text("1 / 0\n")
    (tmp_path / "needs_another.py").write_text("import no_such_framework\n")
    with pytest.raises(PlanError, match="cannot be imported: ZeroDivisionError"):
        make_handler("python:breaks_at_import:Upper")
    with pytest.raises(PlanError, match="'needs_another' needs 'no_such_framework', which is not installed"):
        make_handler("python:needs_another:Upper")


def test_installed_says_what_is_here_and_how_to_get_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {row.kind: row for row in installed()}
    assert list(here) == list(KINDS)
    assert here["sklearn"].installed
    assert here["sklearn"].version
    assert here["python"].installed
    monkeypatch.setattr(registry, "is_installed", lambda module: module != "onnxruntime")
    missing = {row.kind: row for row in installed()}["onnx"]
    assert (missing.installed, missing.version, missing.install) == (False, None, "pip install 'headrace[onnx]'")
    assert "pip install" in str(missing)
