from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, PlanError, StageError
from headrace.handlers.jax import JaxModelHandler
from headrace.model.exhaustion import is_out_of_memory
from headrace.model.inputs import column_array
from headrace.model.predictor import Predictor
from headrace.plan.fingerprint import fingerprint
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

pytestmark = pytest.mark.heavy

BATCH = pa.record_batch({"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 4.0], "n": [1, 2, 3], "text": ["x", "yy", "zzz"]})
PARAMS = {"w": np.full((2, 1), 10.0, "float32"), "b": np.ones(1, "float32")}
SUMS = [[16.0], [23.5], [71.0]]


def linear(params: Any, x: Any) -> Any:
    return x @ params["w"] + params["b"]


def predict(handler: JaxModelHandler, batch: pa.RecordBatch = BATCH, **spec: Any) -> list[Any]:
    return from_column(Predictor(InferenceSpec(handler=handler, **spec), "s").predict(batch).columns["prediction"])


def test_answers_are_those_of_the_function() -> None:
    assert predict(JaxModelHandler(linear, PARAMS), inputs=("a", "b")) == SUMS
    assert predict(JaxModelHandler(linear, PARAMS, jit=False), inputs=("a", "b")) == SUMS
    random = np.random.default_rng(0)
    params = {"w": random.normal(size=(5, 3)).astype("float32"), "b": random.normal(size=3).astype("float32")}
    x = random.normal(size=(77, 5)).astype("float32")
    handler = JaxModelHandler(linear, params)
    np.testing.assert_allclose(handler.run_inference(x, handler.load_model()), linear(params, x), rtol=1e-5, atol=1e-6)


def test_each_size_of_batch_is_compiled_once_a_power_of_two() -> None:
    traced = []

    def counting(params: Any, x: Any) -> Any:
        traced.append(x.shape)  # runs when XLA compiles, not when the model answers
        return linear(params, x)

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2)).astype("float32")
    handler = JaxModelHandler(counting, PARAMS)
    model = handler.load_model()
    for rows in range(1, 301):
        answers = handler.run_inference(x[:rows], model)
        assert answers.shape == (rows, 1)
        np.testing.assert_allclose(answers, linear(PARAMS, x[:rows]), rtol=1e-5)
    assert sorted(traced) == [(1 << i, 2) for i in range(9)]
    unpadded = JaxModelHandler(counting, PARAMS, pad_to=None)
    traced.clear()
    model = unpadded.load_model()
    for rows in range(65, 75):  # JAX still knows the powers of two
        unpadded.run_inference(x[:rows], model)
    assert len(traced) == 10


def test_sizes_of_the_users_own() -> None:
    traced = []

    def counting(params: Any, x: Any) -> Any:
        traced.append(len(x))
        return linear(params, x)

    handler = JaxModelHandler(counting, PARAMS, pad_to=(8, 32))
    model = handler.load_model()
    for rows in (1, 7, 20, 33, 100):
        x = np.arange(2 * rows, dtype="float32").reshape(rows, 2)
        np.testing.assert_allclose(handler.run_inference(x, model), linear(PARAMS, x), rtol=1e-5)
    assert sorted(traced) == [8, 32]


def test_what_is_not_compiled_is_not_padded() -> None:
    handler = JaxModelHandler(lambda _, x: x * len(x), jit=False)
    assert predict(handler, inputs="n") == [3, 6, 9]


def test_a_mapping_gives_named_arrays_and_several_outputs_become_a_dict() -> None:
    def both(params: Any, batch: Any, factor: float = 1.0) -> Any:
        return (batch["left"].sum(axis=1) + batch["right"]) * factor, batch["right"] > 1.5

    answers = predict(JaxModelHandler(both), inputs={"left": ("a", "b"), "right": "a"}, inference_args={"factor": 2.0})
    assert answers[1] == {"output_0": 8.5, "output_1": True}


def test_arguments_that_are_no_numbers_are_static() -> None:
    def reduced(params: Any, x: Any, how: str) -> Any:
        return x.sum(axis=1) if how == "sum" else x.max(axis=1)

    handler = JaxModelHandler(reduced, static_argnames=["how"])
    assert predict(handler, inputs=("a", "b"), inference_args={"how": "max"}) == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_parameters_from_a_file(kind: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = str(tmp_path / f"net.{kind}")
    arrays = {f"dense/{name}": array for name, array in PARAMS.items()}
    np.savez(path, **arrays) if kind == "npz" else save_file(arrays, path)
    handler = JaxModelHandler(lambda params, x: linear(params["dense"], x), params_path=path, separator="/")
    assert predict(handler, inputs=("a", "b")) == SUMS
    assert handler.model_id == f"net.{kind}"
    flat = JaxModelHandler(linear, params_path=path).load_model()
    assert sorted(flat.params) == ["dense/b", "dense/w"]


def test_pickled_parameters_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", w=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ModelLoadError, match=r"cannot load the parameters .*net.npz: ValueError: Object arrays"):
        JaxModelHandler(linear, params_path=str(tmp_path / "net.npz")).load_model()
    (tmp_path / "net.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(ModelLoadError, match="is not a safetensors or .npz file: it seems to be a pickle"):
        JaxModelHandler(linear, params_path=str(tmp_path / "net.pkl")).load_model()


def test_integers_that_jax_would_cut_off_fail_their_row() -> None:
    batch = pa.record_batch({"n": [1, 2**40, 3]})
    predictor = Predictor(InferenceSpec(handler=JaxModelHandler(lambda _, x: x * 2), inputs="n"), "s", "dead_letter")
    prediction = predictor.predict(batch)
    assert prediction.columns["prediction"].to_pylist() == [2, 6]
    assert "numbers beyond int32, which is what JAX has unless JAX_ENABLE_X64=1" in str(prediction.errors[1])


def test_a_row_of_another_shape_fails_alone() -> None:
    batch = pa.record_batch({"v": [[1.0, 2.0], [3.0], [4.0, 5.0]]})
    predictor = Predictor(InferenceSpec(handler=JaxModelHandler(linear, PARAMS), inputs="v"), "s", "dead_letter")
    prediction = predictor.predict(batch)
    assert list(prediction.errors) == [1]
    assert prediction.columns["prediction"].to_pylist() == [[31.0], [91.0]]


def test_rows_of_different_lengths_go_in_with_collate() -> None:
    batch = pa.record_batch({"v": [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]})
    handler = JaxModelHandler(lambda _, x: x.sum(axis=1), collate=hr.PadSequences(multiple_of=4))
    assert predict(handler, batch, inputs="v") == [3.0, 3.0, 15.0]
    assert (handler.weighs, JaxModelHandler(linear, PARAMS).weighs) == (True, False)
    without = JaxModelHandler(linear, PARAMS)
    with pytest.raises(ValueError, match="pass collate=hr.PadSequences"):
        without.run_inference(column_array(batch.column("v")), without.load_model())


def test_rows_and_texts_are_refused() -> None:
    with pytest.raises(PlanError, match="takes arrays, not rows: name the columns with inputs="):
        predict(JaxModelHandler(linear, PARAMS))
    with pytest.raises(StageError, match="takes numbers, not str"):
        predict(JaxModelHandler(linear, PARAMS), inputs="text")


@pytest.mark.parametrize("extra", [1, -1])
def test_a_function_that_answers_too_often_or_too_seldom_is_told(extra: int) -> None:
    def miscounting(params: Any, x: Any) -> Any:
        return np.zeros(len(x) + extra, "float32")

    with pytest.raises(StageError, match="answered .* times"):
        predict(JaxModelHandler(miscounting, jit=False), inputs="a")


def test_short_floats_come_out_as_float32() -> None:
    handler = JaxModelHandler(lambda _, x: x.astype("bfloat16"))
    assert predict(handler, inputs="a") == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fn": "net"}, r"takes a function fn\(params, batch\), not str"),
        ({"fn": linear, "params": PARAMS, "params_path": "net.npz"}, "params or params_path=, and was given both"),
        ({"fn": linear, "params_path": "no/net.npz"}, "there is no model file no/net.npz"),
        ({"fn": linear, "pad_to": 0}, "pad_to=0"),
    ],
)
def test_check_finds_wrong_options(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadraceError, match=words):
        JaxModelHandler(**arguments).check()


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(PlanError, match="there is no device 'cpu:7'; here: cpu:0"):
        JaxModelHandler(linear, PARAMS, device="cpu:7").load_model()


def test_parameters_count_by_their_values() -> None:
    import jax.numpy as jnp

    same = [JaxModelHandler(linear, params) for params in (PARAMS, {k: jnp.asarray(v) for k, v in PARAMS.items()})]
    assert fingerprint(same[0]) == fingerprint(same[1])
    assert fingerprint(same[0]) != fingerprint(JaxModelHandler(linear, {**PARAMS, "b": np.zeros(1, "float32")}))


def test_memory_that_ran_out_is_recognised() -> None:
    import jax.numpy as jnp

    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED") as caught:
        jnp.zeros((2**46,)).block_until_ready()
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_run(isolation: Any, tmp_path: Path) -> None:
    def double(params: Any, x: Any) -> Any:
        return x * params["factor"]

    rows = hr.range(1000).run_inference(
        JaxModelHandler(double, {"factor": np.int32(2)}), inputs="id", isolation=isolation, concurrency=2
    )
    rows.write_parquet(str(tmp_path / "out")).run()
    assert [row["prediction"] for row in hr.read_parquet(str(tmp_path / "out")).iter_rows()] == list(range(0, 2000, 2))
