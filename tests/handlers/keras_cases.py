"""What KerasModelHandler has to do on every backend. A process has one backend, so each runs these in its own.

`python -m tests.handlers.keras_cases jax` runs them on JAX.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import ModelLoadError, PlanError, StageError
from headrace.handlers.keras import KerasModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.fingerprint import fingerprint
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column
from tests.handlers.backends import run_cases

BATCH = pa.record_batch({"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 4.0], "n": [1, 2, 3]})
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def predict(handler: KerasModelHandler, batch: pa.RecordBatch = BATCH, **spec: Any) -> list[Any]:
    return from_column(Predictor(InferenceSpec(handler=handler, **spec), "s").predict(batch).columns["prediction"])


@functools.cache
def net() -> Any:
    """A small network of fixed random weights, with layers that training and inference treat differently."""
    import keras

    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), name="x")
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation="relu")(inputs))
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.5)(hidden)), name="net")


def two_and_two() -> Any:
    """A model of two named inputs, whole numbers and floats, and two outputs."""
    import keras

    left, number = keras.Input((2,), name="left"), keras.Input((), dtype="int32", name="number")
    scaled = keras.layers.Rescaling(2.0, name="scaled")(left)
    embedded = keras.layers.Embedding(5, 1, embeddings_initializer="ones", name="embedded")(number)
    return keras.Model([left, number], [scaled, embedded], name="two")


def saved(model: Any, name: str = "net.keras") -> str:
    path = str(Path(tempfile.mkdtemp(dir=os.getcwd()), name))
    model.save(path)
    return path


@case
def answers_are_those_of_keras() -> None:
    x = np.random.default_rng(0).normal(size=(77, 2)).astype("float32")
    expected = net().predict(x, verbose=0)
    for handler in (KerasModelHandler(saved(net())), KerasModelHandler(model=net())):
        model = handler.load_model()
        np.testing.assert_allclose(handler.run_inference(x, model), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(handler.run_inference(x[:1], model), expected[:1], rtol=1e-5, atol=1e-6)
        batch = pa.record_batch({"a": x[:, 0].astype("float64"), "b": x[:, 1].astype("float64")})
        np.testing.assert_allclose(predict(handler, batch, inputs=("a", "b")), expected, rtol=1e-5, atol=1e-6)


@case
def older_files_and_weights() -> None:
    expected = predict(KerasModelHandler(model=net()), inputs=("a", "b"))
    old = KerasModelHandler(saved(net(), "net.h5"))
    np.testing.assert_allclose(predict(old, inputs=("a", "b")), expected, rtol=1e-6)
    weights = str(Path(tempfile.mkdtemp(dir=os.getcwd()), "net.weights.h5"))
    net().save_weights(weights)

    def build() -> Any:
        import keras

        inputs = keras.Input((2,))
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation="relu")(inputs))
        return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.5)(hidden)))

    built = KerasModelHandler(build=build, weights_path=weights)
    np.testing.assert_allclose(predict(built, inputs=("a", "b")), expected, rtol=1e-6)
    assert built.model_id == "net.weights.h5"


@case
def inputs_and_outputs_by_name() -> None:
    handler = KerasModelHandler(model=two_and_two())
    expected = [
        {"scaled": [2.0, 1.0], "embedded": [1.0]},
        {"scaled": [4.0, 0.5], "embedded": [1.0]},
        {"scaled": [6.0, 8.0], "embedded": [1.0]},
    ]
    answers = predict(handler, inputs={"left": ("a", "b"), "number": "n"})
    assert [{name: list(value) for name, value in answer.items()} for answer in answers] == expected
    with pytest.raises(PlanError, match="'left' float32 .*'number' int32 .*nothing is given for left"):
        predict(handler, inputs={"number": "n", "l": "a"})


@case
def structures_of_dicts() -> None:
    import keras

    left, right = keras.Input((), name="left"), keras.Input((), name="right")
    model = keras.Model({"left": left, "right": right}, {"sum": left + right, "product": left * right})
    answers = predict(KerasModelHandler(model=model), inputs={"right": "a", "left": "b"})
    assert answers == [{"sum": 1.5, "product": 0.5}, {"sum": 2.25, "product": 0.5}, {"sum": 7, "product": 12}]


@case
def models_that_declare_no_inputs() -> None:
    import keras

    class Sums(keras.Model):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.scale = keras.layers.Rescaling(10.0)

        def call(self, x: Any) -> Any:
            return self.scale(keras.ops.sum(x, axis=1, keepdims=True))

    model = Sums()
    model(np.zeros((1, 2), "float32"))
    assert predict(KerasModelHandler(model=model), inputs=("a", "b")) == [[15.0], [22.5], [70.0]]
    path = saved(model)
    own = KerasModelHandler(path, custom_objects={"Sums": Sums})
    assert predict(own, inputs=("a", "b")) == [[15.0], [22.5], [70.0]]
    with pytest.raises(ModelLoadError, match="pass classes and functions of your own as custom_objects="):
        KerasModelHandler(path).load_model()


@case
def a_sequence_of_layers() -> None:
    import keras

    model = keras.Sequential([keras.layers.Rescaling(2.0)])
    model.build((None, 2))
    assert predict(KerasModelHandler(model=model), inputs=("a", "b"))[0] == [2.0, 1.0]


@case
def rows_that_do_not_fit_fail_alone() -> None:
    for column, words in (([[1.0, 2.0], [3.0], [4.0, 5.0]], "shape"), ([[1.0, 2.0], None, [4.0, 5.0]], "was given")):
        spec = InferenceSpec(handler=KerasModelHandler(model=net()), inputs="v")
        prediction = Predictor(spec, "s", "dead_letter").predict(pa.record_batch({"v": column}))
        assert list(prediction.errors) == [1]
        assert words in str(prediction.errors[1])
    spec = InferenceSpec(handler=KerasModelHandler(model=two_and_two()), inputs={"left": ("a", "b"), "number": "v"})
    for values in ([1, None, 3], [1, 2**40, 3]):
        batch = BATCH.append_column("v", pa.array(values))
        assert list(Predictor(spec, "s", "dead_letter").predict(batch).errors) == [1]


@case
def rows_of_different_lengths_go_in_with_collate() -> None:
    import keras

    inputs = keras.Input((None,), name="v")
    model = keras.Model(inputs, keras.layers.Lambda(lambda x: keras.ops.sum(x, axis=1), output_shape=())(inputs))
    batch = pa.record_batch({"v": [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]})
    assert predict(KerasModelHandler(model=model, collate=hr.PadSequences()), batch, inputs="v") == [3.0, 3.0, 15.0]


@case
def lambdas_need_trust() -> None:
    import keras

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Lambda(lambda x: x * 2, output_shape=(2,))(inputs))
    for name in ("net.keras", "net.h5"):
        path = saved(model, name)
        with pytest.raises(ModelLoadError, match="pass trust_remote_code=True if you trust them"):
            KerasModelHandler(path).load_model()
        assert predict(KerasModelHandler(path, trust_remote_code=True), inputs=("a", "b"))[0] == [2.0, 1.0]


@case
def files_of_the_wrong_kind() -> None:
    for name, content, words in (
        ("net.keras", b"", "is not a Keras model .*: it seems to be an empty file"),
        ("net.keras", b"\x80\x04N.", "it seems to be a pickle"),
        ("net.h5", b"\x89HDF\r\n\x1a\nnonsense", "Keras cannot load .*net.h5"),
    ):
        path = Path(tempfile.mkdtemp(dir=os.getcwd()), name)
        path.write_bytes(content)
        with pytest.raises(ModelLoadError, match=words):
            KerasModelHandler(path).load_model()
    renamed = Path(saved(net())).rename("net.zip")
    with pytest.raises(ModelLoadError, match=r"Keras takes it under the name \*.keras only; rename it"):
        KerasModelHandler(renamed).load_model()
    weights = "only.h5"
    net().save_weights("only.weights.h5")
    Path("only.weights.h5").rename(weights)
    with pytest.raises(ModelLoadError, match="pass it as weights_path=, with build="):
        KerasModelHandler(weights).load_model()


@case
def another_function_for_the_call() -> None:
    def first_class(batch: Any, model: Any, args: dict[str, Any]) -> Any:
        assert isinstance(batch, np.ndarray)
        return model.predict_on_batch(batch).argmax(axis=1) + args.get("add", 0)

    handler = KerasModelHandler(model=net(), inference_fn=first_class)
    expected = net().predict(np.array([[1, 0.5], [2, 0.25], [3, 4]], "float32"), verbose=0).argmax(axis=1) + 1
    assert predict(handler, inputs=("a", "b"), inference_args={"add": 1}) == expected.tolist()
    with pytest.raises(PlanError, match="takes inference_args only with inference_fn="):
        predict(KerasModelHandler(model=net()), inputs=("a", "b"), inference_args={"add": 1})


@case
def wrong_numbers_of_answers_are_told() -> None:
    import keras

    class Fewer(keras.Model):
        def call(self, x: Any) -> Any:
            return x[1:]

    model = Fewer()
    model(np.zeros((2, 2), "float32"))
    with pytest.raises(StageError, match="answered"):
        predict(KerasModelHandler(model=model), inputs=("a", "b"))


@case
def models_in_memory_count_by_their_weights() -> None:
    import keras

    def made(value: float) -> KerasModelHandler:
        model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1, name="dense")], name="same")
        model.set_weights([np.full((2, 1), value, "float32"), np.zeros(1, "float32")])
        return KerasModelHandler(model=model)

    assert fingerprint(made(1.0)) == fingerprint(made(1.0))
    assert fingerprint(made(1.0)) != fingerprint(made(2.0))


@case
def runs_in_threads_and_in_a_process_of_its_own() -> None:
    expected = predict(KerasModelHandler(model=net()), inputs=("a", "b"))[1]
    items = [{"id": i, "a": 2.0, "b": 0.25} for i in range(500)]
    for isolation, handler in (
        ("thread", KerasModelHandler(saved(net()))),
        ("process", KerasModelHandler(model=net())),
    ):
        rows = hr.from_items(items).run_inference(
            handler, inputs=["a", "b"], isolation=isolation, concurrency=2 if isolation == "thread" else 1
        )
        found = list(rows.iter_rows())
        assert [row["id"] for row in found] == list(range(500))
        np.testing.assert_allclose([row["prediction"] for row in found], [expected] * 500, rtol=1e-5, atol=1e-6)


@case
def sizes_are_compiled_only_where_the_backend_compiles_them() -> None:
    import keras

    traced = []

    class Noted(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            traced.append(x.shape)
            return x * 2

    inputs = keras.Input((2,))
    model = keras.Model(inputs, Noted()(inputs))
    handler = KerasModelHandler(model=model)
    loaded = handler.load_model()
    traced.clear()
    for rows in range(1, 101):
        answers = handler.run_inference(np.ones((rows, 2), "float32"), loaded)
        np.testing.assert_array_equal(answers, np.full((rows, 2), 2.0))
    expected = {"jax": 8, "tensorflow": 2, "torch": 100}[keras.config.backend()]
    assert len(traced) == expected, traced


@case
def a_process_has_one_backend() -> None:
    import keras

    running = keras.config.backend()
    other = "torch" if running != "torch" else "jax"
    with pytest.raises(PlanError, match=rf"backend='{other}', but Keras runs on '{running}' in this process already"):
        KerasModelHandler(saved(net()), backend=other).load_model()
    assert predict(KerasModelHandler(saved(net()), backend=running), inputs=("a", "b"))
    assert "KERAS_BACKEND" not in os.environ


if __name__ == "__main__":
    run_cases(CASES, sys.argv[1])
