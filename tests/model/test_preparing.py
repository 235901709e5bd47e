"""What preparers may return, and how it reaches the handler."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import RowError, StageError, UnknownColumnError
from headrace.model.predictor import Predictor
from headrace.model.preparing import Preparing, model_inputs, ready_rows
from headrace.model.scales import Scales
from headrace.plan.nodes import InferenceSpec
from headrace.records.private import PREPARED

TEXTS = pa.record_batch({"text": ["a", "bcd", "ef"]})


class Summing(hr.ModelHandler):
    """Answers with the sum of each row's numbers; weighs by their count."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def load_model(self):
        return None

    def weigh(self, batch):
        return [len(ids) for ids in batch["ids"]]

    def run_inference(self, batch, model):
        self.batches.append(batch)
        return [hr.RowError("too much") if sum(ids) > 100 else int(sum(ids)) for ids in batch["ids"]]


def prepared(values: Any, rows: int = 3) -> tuple[pa.RecordBatch, dict[int, Exception]]:
    """Return a batch as the model's stage gets it."""
    column, failures = Preparing(lambda _: {"ids": values}, "text", "auto")(TEXTS.slice(0, rows), step="s")
    return pa.RecordBatch.from_arrays([column], names=[PREPARED]), failures


SPEC = InferenceSpec(handler=Summing(), inputs="text", prepared=True)


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        (np.arange(6, dtype=np.int32).reshape(3, 2), np.arange(6, dtype=np.int32).reshape(3, 2)),
        (np.zeros((3, 2, 4, 3), np.uint8), np.zeros((3, 2, 4, 3), np.uint8)),
        (np.array([1.5, 2.5, 3.5], np.float32), np.array([1.5, 2.5, 3.5], np.float32)),
        ([np.array([1, 2]), np.array([3, 4]), np.array([5, 6])], np.array([[1, 2], [3, 4], [5, 6]])),
        (pa.array([[1], [2], [3]]), np.array([[1], [2], [3]])),
        (["x", "y", "z"], np.array(["x", "y", "z"], dtype=object)),
    ],
)
def test_values_of_one_shape_reach_the_model_as_one_array(values: Any, seen: Any) -> None:
    batch, failures = prepared(values)
    inputs = model_inputs(batch, SPEC, None, step="s")
    assert failures == {}
    assert ready_rows(batch, SPEC) is None
    assert list(inputs) == ["ids"]
    assert inputs["ids"].dtype == seen.dtype
    np.testing.assert_array_equal(inputs["ids"], seen)


@pytest.mark.parametrize("shapes", [[(1,), (3,), (0,)], [(2, 3), (1, 3), (2, 2)]])
def test_values_of_several_shapes_reach_the_model_as_arrays_among_objects(shapes: list[tuple[int, ...]]) -> None:
    values = [np.full(shape, i, np.uint8) for i, shape in enumerate(shapes)]
    batch, _ = prepared(values)
    (ids,) = model_inputs(batch.slice(1), SPEC, None, step="s").values()
    assert ids.shape == (2,)
    assert [a.shape for a in ids] == shapes[1:]
    assert all(np.array_equal(a, b) and a.dtype == np.uint8 for a, b in zip(ids, values[1:], strict=True))


def test_arrays_that_the_preparer_uses_again_are_copied() -> None:
    buffer = np.array([1, 2, 3])
    batch, _ = prepared(buffer)
    buffer[:] = 0
    assert model_inputs(batch, SPEC, None, step="s")["ids"].tolist() == [1, 2, 3]


def test_rows_in_whose_place_an_error_stands_are_asked_and_weighed_by_nobody() -> None:
    handler = Summing()
    spec = InferenceSpec(handler=handler, inputs="text", prepared=True)
    batch, failures = prepared([np.array([1, 2]), RowError("too dark"), np.array([100, 200])])
    assert str(failures[1]) == "too dark"
    assert ready_rows(batch, spec).tolist() == [0, 2]
    assert Scales(spec, "s").weights(batch).tolist() == [2, 0, 2]
    found = Predictor(spec, "s", "null").predict(batch)
    assert found.columns["prediction"].to_pylist() == [3, None, None]
    assert found.with_error == 2
    assert [len(given["ids"]) for given in handler.batches] == [2]
    assert Predictor(spec, "s", "dead_letter").predict(batch.slice(1, 1)).errors.keys() == {0}


def test_what_is_no_mapping_of_one_value_a_row_is_refused_in_words() -> None:
    with pytest.raises(StageError, match=r"step 's': the preparer function returned list; .* mapping from names"):
        Preparing(lambda texts: [1, 2, 3], "text", "auto")(TEXTS, step="s")
    with pytest.raises(StageError, match="an empty mapping"):
        Preparing(lambda texts: {}, "text", "auto")(TEXTS, step="s")
    with pytest.raises(RowError, match=r"returned 2 values of 'ids' for 3 rows"):
        prepared([1, 2])
    with pytest.raises(RowError, match=r"returned int of 'ids' for 3 rows"):
        prepared(7)
    with pytest.raises(UnknownColumnError, match="step 's' needs column 'txt'"):
        Preparing(lambda texts: {"ids": texts}, "txt", "auto")(TEXTS, step="s")


def test_each_replica_sets_up_and_closes_a_copy_of_its_own() -> None:
    class Counting:
        opened = closed = 0

        def setup(self):
            self.opened += 1

        def close(self):
            self.closed += 1

        def __call__(self, texts):
            return {"opened": [self.opened] * len(texts)}

    given = Counting()
    replicas = [Preparing(given, "text", "auto") for _ in range(2)]
    for replica in replicas:
        replica.setup()
        column, _ = replica(TEXTS, step="s")
        assert column.to_pylist() == [{"opened": 1}] * 3
        replica.close()
    assert (given.opened, given.closed) == (0, 0)
