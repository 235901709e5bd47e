"""The task of a model stage: answers beside rows, failures by row of the batch."""

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.predict import PredictTask, batch_of
from headrace.errors import AnswerError, ModelLoadError
from headrace.plan.nodes import InferenceSpec


class Sign(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [hr.RowError("negative") if row["x"] < 0 else 1 for row in batch]


def answered(values, on_error="dead_letter", **spec):
    task = PredictTask(InferenceSpec(handler=Sign(), **spec), "model", on_error)
    task.open()
    (block,) = task.process(batch_of([pa.record_batch({"x": values})], InferenceSpec(handler=Sign())))
    task.close()
    return block


def test_answers_have_the_output_columns_alone() -> None:
    block = answered([1, 2])
    assert block.batch.schema.names == ["prediction", "model_id"]
    assert block.batch["model_id"].to_pylist() == ["Sign", "Sign"]
    assert answered([1], model_id_column=None).batch.schema.names == ["prediction"]


def test_failed_rows_are_told_by_their_number_and_the_others_keep_theirs() -> None:
    block = answered([1, -1, 3])
    assert block.ordinal_array().tolist() == [0, 2]
    assert [(f.ordinal, f.stage, f.message, f.model_id) for f in block.failures] == [(1, "model", "negative", "Sign")]


def test_under_fail_the_first_bad_row_comes_back_for_the_stage_to_raise() -> None:
    block = answered([1, -1, -2], on_error="fail")
    assert [f.ordinal for f in block.failures] == [1]
    assert block.num_rows == 0


def test_under_null_rows_stay_and_are_counted() -> None:
    block = answered([1, -1], on_error="null")
    assert block.batch["prediction"].to_pylist() == [1, None]
    assert (block.errors, block.failures) == (1, ())


def test_rows_of_any_blocks_make_one_batch_under_a_common_schema() -> None:
    rows = [pa.record_batch({"x": [1]}), pa.record_batch({"x": [0.5], "y": ["a"]})]
    batch = batch_of(rows, InferenceSpec(handler=Sign())).batch
    assert batch.to_pydict() == {"x": [1.0, 0.5], "y": [None, "a"]}


def test_only_the_model_s_columns_are_copied_where_they_are_known() -> None:
    rows = [pa.record_batch({"x": [1], "y": ["a"]})]
    assert batch_of(rows, InferenceSpec(handler=Sign(), inputs="x")).batch.schema.names == ["x"]


def test_a_model_that_cannot_be_loaded_has_no_statistics_and_can_be_closed() -> None:
    class Lost(Sign):
        def load_model(self):
            raise FileNotFoundError("model.bin")

    task = PredictTask(InferenceSpec(handler=Lost()), "model", "fail")
    assert task.statistics() is None
    with pytest.raises(ModelLoadError, match=r"model\.bin"):
        task.open()
    task.close()


def test_answers_that_are_none_at_all_are_the_row_s_failure() -> None:
    class Short(Sign):
        def run_inference(self, batch, model):
            return []

    task = PredictTask(InferenceSpec(handler=Short()), "model", "dead_letter")
    task.open()
    (block,) = task.process(batch_of([pa.record_batch({"x": [1, 2]})], InferenceSpec(handler=Short())))
    assert [f.error_type for f in block.failures] == [AnswerError.__name__] * 2
