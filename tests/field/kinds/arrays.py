"""Kinds of handlers for arrays that are compiled or run by a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace.handlers.importing import imported
from headrace.handlers.jax import JaxModelHandler
from headrace.handlers.keras import KerasModelHandler
from headrace.handlers.tensorflow import TensorFlowModelHandler
from tests.field.kinds.kind import Kind, Model
from tests.field.kinds.tables import numbers, repeated

ARRAYS = "it answers arrays, whose rows are alike"

# -- Keras -----------------------------------------------------------------------------------------------------------


def keras_model(folder: Path) -> Model:
    from headrace.handlers.importing import imported_keras

    keras = imported_keras(None, needed_by="a test")
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), name="v")
    keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dense(4, activation="relu")(inputs))).save(
        folder / "net.keras"
    )
    return Model(handler=KerasModelHandler(folder / "net.keras"), inputs=["x", "y"])


def answering_keras(folder: Path, answer: Callable[[Any], Any], inputs: list[str]) -> Model:
    keras_model(folder)
    handler = KerasModelHandler(folder / "net.keras", inference_fn=lambda batch, model, args: answer(batch))
    return Model(handler=handler, inputs=inputs)


KERAS = Kind(
    name="keras",
    needs=("keras", "tensorflow"),
    make=keras_model,
    row=numbers,
    bad={"x": "a word"},
    error=("ValueError", "was given str"),
    tolerance=1e-5,
    ragged=lambda folder: answering_keras(
        folder, lambda m: [np.full(int(wanted), float(i)) for i, wanted in m], ["id", "wanted"]
    ),
    squeezed=lambda folder: answering_keras(folder, lambda m: np.squeeze(m * 0.5), ["id"]),
    miscounting=lambda folder: answering_keras(folder, lambda m: repeated(m[:, 0], m[:, 1]), ["id", "times"]),
)

# -- TensorFlow ------------------------------------------------------------------------------------------------------


def signature(folder: Path, answer: Callable[[Any, Any], Any], inputs: list[str]) -> Model:
    """Save a program of columns of numbers."""
    tf = imported("tensorflow")
    specs = {name: tf.TensorSpec([None], tf.float32, name=name) for name in inputs}
    module = tf.Module()
    function = tf.function(lambda **columns: {"answer": answer(tf, columns)})
    tf.saved_model.save(module, str(folder), signatures=function.get_concrete_function(**specs))
    return Model(handler=TensorFlowModelHandler(str(folder)), inputs=inputs)


TENSORFLOW = Kind(
    name="tensorflow",
    needs=("tensorflow",),
    make=lambda folder: signature(
        folder, lambda tf, given: tf.stack([given["x"] * 2.0, given["y"]], axis=1), ["x", "y"]
    ),
    row=numbers,
    bad={"x": "a word"},
    error=("ValueError", "was given str"),
    tolerance=1e-6,
    ragged=ARRAYS,
    squeezed=lambda folder: signature(folder, lambda tf, given: tf.squeeze(given["id"][:, tf.newaxis] * 0.5), ["id"]),
    miscounting=lambda folder: signature(
        folder, lambda tf, given: tf.repeat(given["id"], tf.cast(given["times"], tf.int32)), ["id", "times"]
    ),
)

# -- JAX -------------------------------------------------------------------------------------------------------------


def half(params: Any, matrix: Any) -> Any:
    return (matrix * 0.5).squeeze()


def jax_repeated(params: Any, matrix: Any) -> Any:
    return matrix[:, 0].repeat(matrix[:, 1].astype(int))


JAX = Kind(
    name="jax",
    needs=("jax",),
    make=lambda folder: Model(
        handler=JaxModelHandler(lambda params, matrix: matrix @ params, np.array([[0.5, 1.0], [2.0, 3.0]], "float32")),
        inputs=["x", "y"],
    ),
    row=numbers,
    bad={"x": "a word"},
    error=("ValueError", "a JAX function takes numbers, not str"),
    tolerance=1e-6,
    ragged=ARRAYS,
    squeezed=lambda folder: Model(handler=JaxModelHandler(half, pad_to=None), inputs=["id"]),
    miscounting=lambda folder: Model(
        handler=JaxModelHandler(jax_repeated, pad_to=None, jit=False), inputs=["id", "times"]
    ),
)

KINDS = (KERAS, TENSORFLOW, JAX)
