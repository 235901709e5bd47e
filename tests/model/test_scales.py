import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError, StageError, UnknownColumnError
from headrace.model.scales import Scales, check_scales, weights_of
from headrace.plan.nodes import BatchLimits, InferenceSpec
from headrace.records.columns import to_column
from headrace.testing import FakeModelHandler


class Words(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [len(text.split()) for text in batch]

    def weigh(self, batch):
        return [len(text.split()) for text in batch]


@pytest.mark.parametrize(
    ("column", "weights"),
    [
        (pa.array([3, None, 2**40]), [3, 0, 2**40]),
        (pa.array([0.5, float("nan"), float("inf"), -1.0]), [0.5, 0, 0, 0]),
        (pa.array(["abc", "", None]), [3, 0, 0]),
        (pa.array(["abc", "é", "abc"]).dictionary_encode(), [3, 1, 3]),
        (pa.array([b"abc", "é".encode()]), [3, 2]),
        (pa.array([[1, 2], [], None]), [2, 0, 0]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), [2, 2]),
        (to_column([np.zeros((2, 3)), np.zeros((4, 5))]), [6, 20]),
        (pa.nulls(2), [0, 0]),
    ],
)
def test_columns_are_weighed_by_value_or_length(column: pa.Array, weights: list[float]) -> None:
    assert weights_of(column).tolist() == weights
    assert weights_of(pa.concat_arrays([column, column]).slice(1, len(column))).tolist() == [*weights[1:], weights[0]]


@pytest.mark.parametrize("column", [pa.array([True]), pa.array([{"a": 1}]), to_column([object])])
def test_what_has_no_weight_is_refused_by_name(column: pa.Array) -> None:
    limits = BatchLimits(weight_column="size")
    scales = Scales(InferenceSpec(handler=FakeModelHandler(answer=len), limits=limits), "model")
    with pytest.raises(StageError, match=r"step 'model' weighs rows by 'size', which holds .*; it has to hold numbers"):
        scales.weights(pa.record_batch({"size": column}))


def test_a_column_that_is_not_there_is_named() -> None:
    limits = BatchLimits(weight_column="size")
    scales = Scales(InferenceSpec(handler=FakeModelHandler(answer=len), limits=limits), "model")
    with pytest.raises(UnknownColumnError, match="step 'model' needs column 'size'"):
        scales.weights(pa.record_batch({"sise": [1]}))


def test_rows_that_a_handler_cannot_weigh_weigh_nothing() -> None:
    scales = Scales(InferenceSpec(handler=Words(), inputs="text"), "model")
    batch = pa.record_batch({"text": ["a b", None, "c", "d e f"]})
    assert scales.padded
    assert scales.weights(batch).tolist() == [2, 0, 1, 3]  # type: ignore[union-attr]


def test_a_handler_has_to_weigh_each_row() -> None:
    class Short(Words):
        def weigh(self, batch):
            return [1]

    with pytest.raises(StageError, match=r"Short.weigh returned an array of shape \(1,\) for 2 rows"):
        Scales(InferenceSpec(handler=Short(), inputs="text"), "model").weights(pa.record_batch({"text": ["a", "b"]}))


def test_a_column_comes_before_the_handler_and_without_either_all_are_alike() -> None:
    limits = BatchLimits(weight_column="n")
    batch = pa.record_batch({"text": ["a b"], "n": [7]})
    by_column = Scales(InferenceSpec(handler=Words(), inputs="text", limits=limits), "model")
    assert (by_column.padded, by_column.weights(batch)) == (False, [7])
    alike = Scales(InferenceSpec(handler=FakeModelHandler(answer=len)), "model")
    assert (alike.padded, alike.weights(batch)) == (False, None)


def test_a_bound_on_weight_needs_weights() -> None:
    limits = BatchLimits(max_batch_weight=9)
    check_scales(InferenceSpec(handler=Words(), limits=limits), "model")
    with pytest.raises(PlanError, match="max_batch_weight needs to know what rows weigh; pass length_fn="):
        check_scales(InferenceSpec(handler=FakeModelHandler(answer=len), limits=limits), "model")
