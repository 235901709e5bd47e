"""Handlers that ship with Headrace can be those of another version of their model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.handlers.catboost import CatBoostModelHandler
from headrace.handlers.function import FunctionModelHandler
from headrace.handlers.huggingface import HuggingFaceModelHandler, HuggingFacePipelineModelHandler
from headrace.handlers.jax import JaxModelHandler
from headrace.handlers.keras import KerasModelHandler
from headrace.handlers.keras_hub import KerasHubModelHandler
from headrace.handlers.lightgbm import LightGBMModelHandler
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.handlers.tensorflow import TensorFlowModelHandler
from headrace.handlers.timm import TimmModelHandler
from headrace.handlers.torch import TorchModelHandler
from headrace.handlers.xgboost import XGBoostModelHandler

HANDLERS = [
    CatBoostModelHandler("m/v1"),
    HuggingFaceModelHandler("m/v1", revision="main"),
    HuggingFacePipelineModelHandler("text-classification", "m/v1"),
    JaxModelHandler(lambda params, batch: batch, params_path="m/v1"),
    KerasModelHandler("m/v1"),
    KerasModelHandler(build=list, weights_path="m/v1"),
    KerasHubModelHandler("m/v1"),
    LightGBMModelHandler("m/v1"),
    OnnxModelHandler("m/v1", threads=3),
    SentenceTransformerModelHandler("m/v1"),
    SklearnModelHandler("m/v1", method="predict"),
    TensorFlowModelHandler("m/v1"),
    TimmModelHandler("m/v1"),
    TimmModelHandler("resnet18", checkpoint_path="m/v1"),
    TorchModelHandler(list, state_dict_path="m/v1"),
    TorchModelHandler(torchscript_path="m/v1"),
    XGBoostModelHandler("m/v1", missing=-1.0),
]


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: type(handler).__name__)
def test_another_path_and_all_else_as_it_was(handler: hr.ModelHandler[Any]) -> None:
    before = dict(vars(handler))
    other = handler.with_model("m/v2")
    assert type(other) is type(handler)
    assert "m/v2" in str(vars(other))
    assert "m/v1" not in str(vars(other))
    assert dict(vars(handler)) == before
    assert {name for name in before if vars(other)[name] != before[name]} <= {
        "path", "paths", "weights_path", "params_path", "checkpoint_path", "model", "revision"
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Own(hr.ModelHandler[str]):
    """A user's own, of which dataclass makes all."""

    path: str
    top_k: int = 3

    def load_model(self) -> str:
        return ""

    def run_inference(self, batch: Any, model: str) -> Any:
        return batch

    def model_files(self) -> list[str]:
        return [self.path]


class Two(Own):
    """Of two files."""

    def model_files(self) -> list[str]:
        return [self.path, "tokens"]


def test_one_of_one_s_own_inherits_it_where_its_one_file_is_in_one_attribute() -> None:
    assert Own("m/v1", top_k=5).with_model("m/v2") == Own("m/v2", top_k=5)
    for handler in (Two("m/v1"), FunctionModelHandler(len), TorchModelHandler(model=object())):
        with pytest.raises(PlanError, match="while a run goes on"):
            handler.with_model("m/v2")
