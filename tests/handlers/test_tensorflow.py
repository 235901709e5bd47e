from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, PlanError, StageError
from headrace.handlers.tensorflow import TensorFlowModelHandler
from headrace.model.exhaustion import is_out_of_memory
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]  # importing TensorFlow takes long on a busy machine

BATCH = pa.record_batch({"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 4.0], "n": [1, 2, 3], "text": ["x", "yé", "zzz"]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel with several signatures."""
    from headrace.handlers.importing import imported

    tf = imported("tensorflow")

    class Module(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable([[10.0], [10.0]])

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
        def linear(self, x: Any) -> Any:
            return {"sum": tf.matmul(x, self.weight)}

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.float32, name="a"),
                tf.TensorSpec([None], tf.float32, name="b"),
                tf.TensorSpec([], tf.float32, name="factor"),
            ]
        )
        def named(self, a: Any, b: Any, factor: Any) -> Any:
            return {"sum": (a + b) * factor, "difference": a - b}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def shout(self, text: Any) -> Any:
            return tf.strings.join([text, "!"])

        @tf.function(input_signature=[tf.TensorSpec([2, 1], tf.int32, name="n")])
        def pairs(self, n: Any) -> Any:
            return {"twice": n * 2}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.bfloat16, name="x")])
        def short(self, x: Any) -> Any:
            return {"y": x}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def miscount(self, x: Any) -> Any:
            return {"y": x[1:]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="x")])
        def broken(self, x: Any) -> Any:
            return {"y": tf.strings.substr(x, 0, 2)}

    module = Module()
    path = tmp_path_factory.mktemp("models") / "net"
    names = ("linear", "named", "shout", "pairs", "short", "miscount", "broken")
    signatures = {name: getattr(module, name) for name in names}
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.linear, **signatures})
    return path


def predict(handler: TensorFlowModelHandler, batch: pa.RecordBatch = BATCH, **spec: Any) -> list[Any]:
    return from_column(Predictor(InferenceSpec(handler=handler, **spec), "s").predict(batch).columns["prediction"])


def test_answers_are_those_of_the_signature(saved: Path) -> None:
    import tensorflow as tf

    handler = TensorFlowModelHandler(saved)
    assert predict(handler, inputs=("a", "b")) == [[15.0], [22.5], [70.0]]
    x = np.random.default_rng(0).normal(size=(50, 2)).astype("float32")
    direct = tf.saved_model.load(str(saved)).signatures["serving_default"](x=tf.constant(x))["sum"].numpy()
    np.testing.assert_array_equal(handler.run_inference(x, handler.load_model()), direct)
    assert handler.model_id == "net"


def test_inputs_and_outputs_by_name_and_constants_from_inference_args(saved: Path) -> None:
    handler = TensorFlowModelHandler(saved, signature="named")
    answers = predict(handler, inputs=("b", "n", "a"), inference_args={"factor": 2.0})
    assert answers[1] == {"difference": 1.75, "sum": 4.5}
    spec = InferenceSpec(
        handler=handler, inputs={"a": "n", "b": "b"}, inference_args={"factor": 1.0}, output={"sum": "total"}
    )
    assert Predictor(spec, "s").predict(BATCH).columns["total"].to_pylist() == [1.5, 2.25, 7.0]
    chosen = TensorFlowModelHandler(saved, signature="named", outputs=["difference"])
    assert predict(chosen, inference_args={"factor": 2.0}) == [0.5, 1.75, -1.0]


def test_texts_go_in_and_come_out(saved: Path) -> None:
    handler = TensorFlowModelHandler(saved, signature="shout")
    assert predict(handler) == ["x!", "yé!", "zzz!"]
    raw = TensorFlowModelHandler(saved, signature="shout", text_outputs=False)
    assert predict(raw, inputs="text") == [b"x!", "yé!".encode(), b"zzz!"]


def test_answers_that_are_no_text_fail_their_row(saved: Path) -> None:
    handler = TensorFlowModelHandler(saved, signature="broken")
    prediction = Predictor(InferenceSpec(handler=handler, inputs="text"), "s", "dead_letter").predict(BATCH)
    assert list(prediction.errors) == [1]  # cut in the middle of a letter
    assert "no UTF-8" in str(prediction.errors[1])
    assert prediction.columns["prediction"].to_pylist() == ["x", "zz"]


def test_short_floats_and_a_batch_of_one_size(saved: Path) -> None:
    assert predict(TensorFlowModelHandler(saved, signature="short"), inputs="a") == [1.0, 2.0, 3.0]
    assert predict(TensorFlowModelHandler(saved, signature="pairs"), inputs="n") == [[2], [4], [6]]


@pytest.mark.parametrize(
    ("batch", "inputs", "signature", "words"),
    [
        ({"v": [[1.0, 2.0], [3.0], [4.0, 5.0]]}, "v", "linear", r"was given an array of shape \(1, 1\)"),
        ({"v": ["x", None, "y"]}, "v", "shout", "'text' string .* was given a null"),
        ({"v": [1, 2**40, 3]}, "v", "pairs", "'n' int32 .* was given numbers beyond int32"),
        ({"v": [1, None, 3]}, "v", "pairs", "'n' int32 .* was given a null or NaN"),
    ],
)
def test_a_row_that_does_not_fit_fails_alone(
    batch: dict[str, Any], inputs: Any, signature: str, words: str, saved: Path
) -> None:
    spec = InferenceSpec(handler=TensorFlowModelHandler(saved, signature=signature), inputs=inputs)
    prediction = Predictor(spec, "s", "dead_letter").predict(pa.record_batch(batch))
    assert list(prediction.errors) == [1]
    with pytest.raises(Exception, match=words):
        raise prediction.errors[1]


def test_rows_of_different_lengths_go_in_with_collate(saved: Path) -> None:
    batch = pa.record_batch({"v": [[1.0, 2.0], [3.0], [4.0]]})
    handler = TensorFlowModelHandler(saved, collate=hr.PadSequences(length=2))
    assert predict(handler, batch, inputs="v") == [[30.0], [30.0], [40.0]]


def test_a_wrong_number_of_answers_is_told(saved: Path) -> None:
    with pytest.raises(StageError, match="answered 2 times .* for 3 rows|answered"):
        predict(TensorFlowModelHandler(saved, signature="miscount"), inputs="a")


def test_missing_inputs_are_named(saved: Path) -> None:
    with pytest.raises(PlanError, match=r"'a' float32 \['\?'\], 'b' float32 .*nothing is given for b, factor"):
        predict(TensorFlowModelHandler(saved, signature="named"), inputs=("a", "n"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"signature": "namd"}, "has no signature 'namd'; did you mean 'named'"),
        ({"signature": "named", "outputs": ["summ"]}, "has no output 'summ'; did you mean 'sum'.*difference, sum"),
    ],
)
def test_wrong_options_are_refused_at_load(options: dict[str, Any], words: str, saved: Path) -> None:
    with pytest.raises(ModelLoadError, match=words):
        TensorFlowModelHandler(saved, **options).load_model()


def test_a_model_without_signatures(tmp_path: Path) -> None:
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    with pytest.raises(ModelLoadError, match="without signatures; save it with tf.saved_model.save"):
        TensorFlowModelHandler(tmp_path / "bare").load_model()


def test_a_damaged_model(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "net")
    (tmp_path / "net" / "saved_model.pb").write_bytes(b"\x00nonsense")
    with pytest.raises(ModelLoadError, match="TensorFlow cannot load .*net: "):
        TensorFlowModelHandler(tmp_path / "net").load_model()


def test_check_finds_what_is_no_saved_model(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"holds no model, for it has no saved_model.pb.*did you mean .*net\?"):
        TensorFlowModelHandler(saved.parent).check()
    with pytest.raises(ModelLoadError, match="there is no model folder"):
        TensorFlowModelHandler(tmp_path / "no").check()
    with pytest.raises(PlanError, match="is a program of whoever wrote it; copy it to a local path.*trust_remote_code"):
        TensorFlowModelHandler("s3://bucket/net").check()


def test_a_model_by_url(saved: Path, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(saved), "/models/net", recursive=True)
    handler = TensorFlowModelHandler("memory://models/net", trust_remote_code=True, cache_dir=str(tmp_path))
    handler.check()
    assert predict(handler, inputs=("a", "b")) == [[15.0], [22.5], [70.0]]


def test_memory_that_ran_out_is_recognised() -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        tf.zeros([2**20, 2**20, 4])
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_run(isolation: Any, saved: Path, tmp_path: Path) -> None:
    rows = hr.range(1000).run_inference(
        TensorFlowModelHandler(saved, signature="pairs"), inputs="id", isolation=isolation, concurrency=2
    )
    rows.write_parquet(str(tmp_path / "out")).run()
    assert [row["prediction"] for row in hr.read_parquet(str(tmp_path / "out")).iter_rows()] == [
        [2 * n] for n in range(1000)
    ]


def test_the_command_line_hears_nothing_from_tensorflow(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,0.5\n2,0.25\n")
    command = ["infer", f"tensorflow:{saved}", "rows.csv", "--inputs", "a,b", "-o", "out", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *command],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert [row["prediction"] for row in hr.read_parquet(str(tmp_path / "out")).iter_rows()] == [[15.0], [22.5]]


def test_what_is_wrong_before_tensorflow_is_imported() -> None:
    with pytest.raises(HeadraceError, match="there is no model folder"):
        TensorFlowModelHandler("models/no").check()
