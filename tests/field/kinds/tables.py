"""Kinds of handlers for numbers and tables."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headrace.handlers.catboost import CatBoostModelHandler
from headrace.handlers.function import FunctionModelHandler
from headrace.handlers.lightgbm import LightGBMModelHandler
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.handlers.torch import TorchModelHandler
from headrace.handlers.xgboost import XGBoostModelHandler
from tests.field.kinds.kind import Kind, Model

BOOSTED = "a boosting model answers one number, or one vector of a fixed length, a row"

TABLE = pd.DataFrame(
    {"age": np.arange(60.0), "spend": np.arange(60.0)[::-1] % 7, "city": ["Oslo", "Rome", "Bern"] * 20}
)


def person(i: int) -> dict[str, Any]:
    return {"age": float(i), "spend": float(i % 7), "city": ("Oslo", "Rome")[i % 2]}


def numbers(i: int) -> dict[str, Any]:
    return {"x": i * 0.5, "y": float(i % 3)}


# -- Functions -------------------------------------------------------------------------------------------------------


def repeated(ids: Any, times: Any) -> np.ndarray:
    return np.repeat(np.asarray(ids), np.asarray(times).astype(int))


FUNCTION = Kind(
    name="function",
    make=lambda folder: Model(handler=FunctionModelHandler(lambda xs: [math.sqrt(x) for x in xs]), inputs="x"),
    row=numbers,
    bad={"x": -1.0},
    error=("ValueError", "math domain error|expected a nonnegative input"),
    ragged=lambda folder: Model(
        handler=FunctionModelHandler(lambda m: [np.full(int(wanted), float(i)) for i, wanted in m]),
        inputs=["id", "wanted"],
    ),
    squeezed=lambda folder: Model(handler=FunctionModelHandler(lambda m: np.squeeze(m * 0.5)), inputs=["id"]),
    miscounting=lambda folder: Model(
        handler=FunctionModelHandler(lambda m: repeated(m[:, 0], m[:, 1])), inputs=["id", "times"]
    ),
)

# -- scikit-learn ----------------------------------------------------------------------------------------------------


class Ragged:
    """Estimators of users may answer anything; scikit-learn's own cannot."""

    def predict(self, matrix: Any) -> Any:
        return [np.full(int(wanted), float(i)) for i, wanted in matrix]


class Squeezed:
    def predict(self, matrix: Any) -> Any:
        return np.squeeze(matrix * 0.5)


class Miscounting:
    def predict(self, matrix: Any) -> Any:
        return repeated(matrix[:, 0], matrix[:, 1])


def pickled(folder: Path, model: Any, inputs: list[str]) -> Model:
    path = folder / f"{type(model).__name__}.pkl"
    path.write_bytes(pickle.dumps(model))
    return Model(handler=SklearnModelHandler(path), inputs=inputs)


def linear_model(folder: Path) -> Model:
    from sklearn.linear_model import LinearRegression

    return pickled(folder, LinearRegression().fit([[0, 1], [1, 0], [2, 5]], [1.0, 2.0, 4.0]), ["x", "y"])


SKLEARN = Kind(
    name="sklearn",
    needs=("sklearn",),
    make=linear_model,
    row=numbers,
    bad={"x": None},
    error=("ValueError", "Input X contains NaN"),
    tolerance=1e-12,
    ragged=lambda folder: pickled(folder, Ragged(), ["id", "wanted"]),
    squeezed=lambda folder: pickled(folder, Squeezed(), ["id"]),
    miscounting=lambda folder: pickled(folder, Miscounting(), ["id", "times"]),
)

# -- ONNX ------------------------------------------------------------------------------------------------------------


def graph(folder: Path, inputs: dict[str, list[Any]], nodes: list[Any], **constants: Any) -> Model:
    """Make a model of nodes whose last output is `y`."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    path = str(folder / f"{nodes[0][0]}.onnx")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(kind, taken, made, **settings) for kind, taken, made, settings in nodes],
            "graph",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.save(model, path)
    return Model(handler=OnnxModelHandler(path), inputs=list(inputs))


def miscounting_graph(folder: Path) -> Model:
    """Those that are wanted once or more, then those that are wanted twice."""
    half, one_and_half = np.float32(0.5), np.float32(1.5)
    return graph(
        folder,
        {"id": ["n"], "times": ["n"]},
        [
            ("Greater", ["times", "half"], ["some"], {}),
            ("Greater", ["times", "one_and_half"], ["more"], {}),
            ("Compress", ["id", "some"], ["once"], {}),
            ("Compress", ["id", "more"], ["again"], {}),
            ("Concat", ["once", "again"], ["y"], {"axis": 0}),
        ],
        half=half,
        one_and_half=one_and_half,
    )


ONNX = Kind(
    name="onnx",
    needs=("onnxruntime", "onnx"),
    make=lambda folder: graph(folder, {"x": ["n"], "y0": ["n"]}, [("Add", ["x", "y0"], ["y"], {})]),
    row=lambda i: {"x": i * 0.5, "y0": float(i % 3)},
    bad={"x": "a word"},
    error=("ValueError", r"input 'x' tensor\(float\) \['n'\] was given str"),
    ragged="the outputs of a graph are tensors, whose rows are alike",
    squeezed=lambda folder: graph(
        folder,
        {"id": ["n", 1]},
        [("Mul", ["id", "half"], ["m"], {}), ("Squeeze", ["m"], ["y"], {})],
        half=np.float32(0.5),
    ),
    miscounting=miscounting_graph,
)

# -- PyTorch ---------------------------------------------------------------------------------------------------------


def module(forward: Any, inputs: Any) -> Model:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return forward(x)

    return Model(handler=TorchModelHandler(model=Net(), device="cpu"), inputs=inputs)


def ragged_torch(folder: Path) -> Model:
    import torch

    def answer(batch: Any, model: Any, device: Any, args: Any) -> Any:
        return [torch.full((int(wanted),), float(i)) for i, wanted in batch]

    handler = TorchModelHandler(model=torch.nn.Identity(), device="cpu", inference_fn=answer)
    return Model(handler=handler, inputs=["id", "wanted"])


TORCH = Kind(
    name="torch",
    needs=("torch",),
    make=lambda folder: module(lambda x: x @ x.new_tensor([0.5, 2.0]), "v"),
    row=lambda i: {"v": [i * 0.5, float(i % 3)]},
    bad={"v": [1.0]},
    error=("ValueError|RuntimeError", "rows of different lengths|shape|size|dimension"),
    tolerance=1e-6,
    ragged=ragged_torch,
    squeezed=lambda folder: module(lambda x: (x * 0.5).squeeze(), ["id"]),
    miscounting=lambda folder: module(lambda x: x[:, 0].repeat_interleave(x[:, 1].long()), ["id", "times"]),
)

# -- Gradient boosting -----------------------------------------------------------------------------------------------


def xgboost_model(folder: Path) -> Model:
    import xgboost

    table = TABLE.astype({"city": "category"})
    matrix = xgboost.DMatrix(table, TABLE.age * 3 + TABLE.spend, enable_categorical=True)
    xgboost.train({"max_depth": 9, "eta": 1, "min_child_weight": 0, "lambda": 0}, matrix, 3).save_model(
        str(folder / "m.ubj")
    )
    return Model(handler=XGBoostModelHandler(str(folder / "m.ubj")))


def lightgbm_model(folder: Path) -> Model:
    import lightgbm

    settings = {
        "objective": "regression",
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "learning_rate": 1,
        "verbose": -1,
    }
    data = lightgbm.Dataset(TABLE.astype({"city": "category"}), TABLE.age * 3 + TABLE.spend)
    lightgbm.train({**settings, "num_leaves": 60}, data, 2).save_model(str(folder / "m.txt"))
    return Model(handler=LightGBMModelHandler(str(folder / "m.txt")))


def catboost_model(folder: Path) -> Model:
    import catboost

    model = catboost.CatBoostRegressor(
        iterations=30, depth=5, learning_rate=0.5, thread_count=1, verbose=False, allow_writing_files=False
    )
    model.fit(TABLE, TABLE.age * 3 + TABLE.spend, cat_features=["city"]).save_model(str(folder / "m.cbm"))
    return Model(handler=CatBoostModelHandler(str(folder / "m.cbm")))


XGBOOST = Kind(
    name="xgboost",
    needs=("xgboost",),
    make=xgboost_model,
    row=person,
    bad={"age": "old"},
    error=("ValueError", "feature 'age' takes numbers and was given ('old'|text)"),
    ragged=BOOSTED,
    squeezed=BOOSTED,
    miscounting=BOOSTED,
)
LIGHTGBM = Kind(
    name="lightgbm",
    needs=("lightgbm",),
    make=lightgbm_model,
    row=person,
    bad={"spend": "much"},
    error=("ValueError", "feature 'spend' takes numbers and was given ('much'|text)"),
    ragged=BOOSTED,
    squeezed=BOOSTED,
    miscounting=BOOSTED,
)
CATBOOST = Kind(
    name="catboost",
    needs=("catboost",),
    make=catboost_model,
    row=person,
    bad={"city": None},
    error=("CatBoostError", "cat_features must be integer or string"),
    tolerance=1e-12,
    ragged=BOOSTED,
    squeezed=BOOSTED,
    miscounting=BOOSTED,
)

KINDS = (FUNCTION, SKLEARN, ONNX, TORCH, XGBOOST, LIGHTGBM, CATBOOST)
