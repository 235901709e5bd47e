import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.plan.fingerprint import fingerprint
from headrace.testing import CollectingSink, FakeModelHandler, assert_balanced


def double(row):
    return 2 * (row["id"] if isinstance(row, dict) else row)


def answers(handler, batch, **args):
    return handler.run_inference(batch, handler.load_model(), args)


@pytest.mark.parametrize(
    "batch",
    [
        [{"id": 1}, {"id": 2}],
        np.array([1, 2]),
        {"id": np.array([1, 2])},
        pa.record_batch({"id": [1, 2]}),
        pa.array([1, 2]),
    ],
    ids=["dicts", "array", "named arrays", "record batch", "arrow array"],
)
def test_batches_of_every_kind_are_answered_row_by_row(batch):
    handler = FakeModelHandler(double)
    assert answers(handler, batch) == [2, 4]
    assert handler.batch_sizes == [2]


def test_data_frames_are_answered_row_by_row():
    pd = pytest.importorskip("pandas")
    assert answers(FakeModelHandler(double, input_format="pandas"), pd.DataFrame({"id": [1, 2]})) == [2, 4]


def test_inference_args_go_to_the_function():
    assert answers(FakeModelHandler(lambda x, by: x * by), np.array([3]), by=5) == [15]


def test_one_row_may_fail_its_batch():
    handler = FakeModelHandler(double, fail_on=lambda x: x == 2)
    assert answers(handler, np.array([1, 3])) == [2, 6]
    with pytest.raises(ValueError, match="told to fail on"):
        answers(handler, np.array([1, 2]))


def test_what_it_counts_neither_travels_nor_makes_it_another_handler():
    used, fresh = FakeModelHandler(double), FakeModelHandler(double)
    answers(used, np.array([1]))
    used.unload(None)
    assert (used.loads, used.unloads, used.batch_sizes) == (1, 1, [1])
    copy = pickle.loads(pickle.dumps(used))
    assert (copy.loads, copy.unloads, copy.batch_sizes) == (0, 0, [])
    assert fingerprint(used) == fingerprint(fresh)
    assert fingerprint(used) != fingerprint(FakeModelHandler(double, model_id="other"))


def test_in_a_pipeline_only_the_poison_row_fails(tmp_path):
    handler = FakeModelHandler(double, fail_on=lambda row: row["id"] == 7, model_id="fake-1")
    sink = CollectingSink()
    failed = tmp_path / "failed"
    result = (
        hr.range(50)
        .run_inference(handler, max_batch_size=16)
        .write(sink)
        .run(on_error="dead_letter", dead_letters=str(failed))
    )
    assert_balanced(result)
    assert [row["id"] for row in sink.rows()] == [i for i in range(50) if i != 7]
    assert {row["model_id"] for row in sink.rows()} == {"fake-1"}
    letters = [json.loads(line) for path in failed.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [letter["row"] for letter in letters] == [{"id": 7}]
    assert max(handler.batch_sizes) <= 16
    assert (handler.loads, handler.unloads) == (1, 1)


def test_one_row_may_be_answered_with_an_error():
    def answer(row):
        return hr.RowError("too odd") if row["id"] == 1 else row["id"]

    table = hr.range(3).run_inference(FakeModelHandler(answer), on_error="null").to_arrow()
    assert table.column("prediction").to_pylist() == [0, None, 2]
