from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.handlers.function import FunctionModelHandler
from headrace.model.inputs import make_inputs
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec

BATCH = pa.record_batch({"n": [1, 2, 3], "text": ["a", "bb", "ccc"]})


def double(batch: Any) -> Any:
    return batch * 2


class Adder:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def __call__(self, batch: Any, more: int = 1) -> Any:
        return batch + more


def answers(handler: FunctionModelHandler, **spec: Any) -> list[Any]:
    column = Predictor(InferenceSpec(handler=handler, **spec), "s").predict(BATCH).columns["prediction"]
    return list(column.to_pylist())


def test_a_function_over_a_batch() -> None:
    assert answers(FunctionModelHandler(double), inputs="n") == [2, 4, 6]
    assert FunctionModelHandler(double).model_id == "double"


def test_a_class_is_made_once_and_takes_inference_args() -> None:
    Adder.made = 0
    handler = FunctionModelHandler(Adder)
    assert answers(handler, inputs="n", inference_args={"more": 10}) == [11, 12, 13]
    assert Adder.made == 1


@pytest.mark.parametrize("inputs", [None, "n", ("n", "text"), {"n": "n", "text": "text"}])
@pytest.mark.parametrize("input_format", ["auto", "pandas", "pyarrow"])
def test_one_row_at_a_time_whatever_the_batch_is(inputs: Any, input_format: str) -> None:
    def number(row: Any) -> int:
        if isinstance(row, dict):
            return int(row["n"])
        return int(row[0]) if isinstance(row, np.ndarray) else int(row)

    assert answers(FunctionModelHandler(number, row=True, input_format=input_format), inputs=inputs) == [1, 2, 3]


def test_a_row_that_raises_fails_alone_in_one_pass() -> None:
    seen: list[int] = []

    def inverse(row: dict[str, Any]) -> float:
        seen.append(row["n"])
        return 1 / (row["n"] - 2)

    predictor = Predictor(InferenceSpec(handler=FunctionModelHandler(inverse, row=True)), "s", "dead_letter")
    prediction = predictor.predict(BATCH)
    assert prediction.columns["prediction"].to_pylist() == [-1.0, 1.0]
    assert isinstance(prediction.errors[1], ZeroDivisionError)
    assert seen == [1, 2, 3]


def test_batch_formats() -> None:
    handler = FunctionModelHandler(lambda frame: frame["text"].str.len(), input_format="pandas")
    assert answers(handler) == [1, 2, 3]
    assert make_inputs(BATCH, "n", input_format="pyarrow").type == pa.int64()
