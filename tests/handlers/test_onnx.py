from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, PlanError, StageError
from headrace.handlers.onnx import OnnxModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

FLOAT, INT32, INT64, STRING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING


def save(
    path: Path,
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any]]],
    nodes: list[tuple[str, list[str], list[str]]],
) -> str:
    graph = helper.make_graph(
        [helper.make_node(kind, taken, made) for kind, taken, made in nodes],
        "graph",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [helper.make_tensor_value_info(name, *of) for name, of in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def adder(tmp_path: Path) -> str:
    """Two named inputs, two outputs: their sum and their difference."""
    of = (FLOAT, ["n", 1])
    return save(
        tmp_path / "adder.onnx",
        {"a": of, "b": of},
        {"sum": of, "difference": of},
        [("Add", ["a", "b"], ["sum"]), ("Sub", ["a", "b"], ["difference"])],
    )


@pytest.fixture
def doubler(tmp_path: Path) -> str:
    """One matrix of three columns, doubled."""
    of = (FLOAT, [None, 3])
    return save(tmp_path / "doubler.onnx", {"x": of}, {"y": of}, [("Add", ["x", "x"], ["y"])])


BATCH = pa.record_batch({"id": [1, 2, 3], "a": [1, 2, 3], "b": [0.5, 0.25, 4.0], "text": ["x", "y", "z"]})


def predict(handler: OnnxModelHandler, batch: pa.RecordBatch = BATCH, **spec: Any) -> list[Any]:
    return from_column(Predictor(InferenceSpec(handler=handler, **spec), "s").predict(batch).columns["prediction"])


def test_columns_called_like_the_inputs_go_there(adder: str) -> None:
    expected = [
        {"sum": [1.5], "difference": [0.5]},
        {"sum": [2.25], "difference": [1.75]},
        {"sum": [7], "difference": [-1]},
    ]
    for inputs in (None, ("b", "a"), {"a": "a", "b": "b"}):
        assert predict(OnnxModelHandler(adder), inputs=inputs) == expected


def test_a_mapping_names_columns_for_the_inputs_and_outputs_for_the_columns(adder: str) -> None:
    spec = InferenceSpec(
        handler=OnnxModelHandler(adder), inputs={"a": "b", "b": ("a",)}, output={"difference": "diff", "sum": "total"}
    )
    columns = Predictor(spec, "s").predict(BATCH).columns
    assert columns["diff"].to_pylist() == [[-0.5], [-1.75], [1.0]]
    assert columns["total"].to_pylist() == [[1.5], [2.25], [7.0]]


def test_chosen_outputs(adder: str) -> None:
    assert predict(OnnxModelHandler(adder, outputs=["sum"])) == [[1.5], [2.25], [7.0]]


def test_constant_inputs_come_from_inference_args(adder: str) -> None:
    handler = OnnxModelHandler(adder, outputs=["sum"])
    assert predict(handler, inputs="a", inference_args={"b": [[10]]}) == [[11.0], [12.0], [13.0]]


def test_a_model_of_one_input_takes_a_matrix_or_a_column_of_vectors(doubler: str) -> None:
    handler = OnnxModelHandler(doubler)
    assert predict(handler, inputs=("id", "a", "b"))[1] == [4.0, 4.0, 0.5]
    vectors = pa.record_batch({"v": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]})
    assert predict(handler, vectors, inputs="v") == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]
    assert predict(handler, vectors) == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]


def test_a_scikit_learn_model_with_its_dicts_of_probabilities(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    model = LogisticRegression().fit(x, (x[:, 0] > 0).astype(int))
    (tmp_path / "m.onnx").write_bytes(to_onnx(model, x[:1]).SerializeToString())
    batch = pa.record_batch({"p": x[:, 0].astype(float), "q": x[:, 1].astype(float)})
    answers = predict(OnnxModelHandler(tmp_path / "m.onnx"), batch, inputs=("p", "q"))
    assert [answer["output_label"] for answer in answers] == model.predict(x).tolist()
    assert answers[0]["output_probability"]["1"] == pytest.approx(model.predict_proba(x)[0, 1], abs=1e-5)


def test_integers_are_cast_within_range_and_floats_never_become_integers(tmp_path: Path) -> None:
    of = (INT32, [None])
    path = save(tmp_path / "ints.onnx", {"x": of}, {"y": of}, [("Add", ["x", "x"], ["y"])])
    handler = OnnxModelHandler(path)
    assert predict(handler, inputs="id") == [2, 4, 6]
    with pytest.raises(StageError, match=r"input 'x' tensor\(int32\) .* was given float64; cast the column first"):
        predict(handler, inputs="b")
    big = pa.record_batch({"n": [1, 2**40, 3]})
    predictor = Predictor(InferenceSpec(handler=handler, inputs="n"), "s", "dead_letter")
    prediction = predictor.predict(big)
    assert list(prediction.errors) == [1]
    assert "beyond int32" in str(prediction.errors[1])
    assert prediction.columns["prediction"].to_pylist() == [2, 6]


def test_text_inputs(tmp_path: Path) -> None:
    of = (STRING, [None])
    path = save(tmp_path / "text.onnx", {"x": of}, {"y": of}, [("Identity", ["x"], ["y"])])
    assert predict(OnnxModelHandler(path), inputs="text") == ["x", "y", "z"]


@pytest.mark.parametrize("size", [1, 2])
def test_a_model_exported_for_one_batch_size(tmp_path: Path, size: int) -> None:
    of = (FLOAT, [size, 1])
    path = save(tmp_path / "fixed.onnx", {"x": of}, {"y": of}, [("Add", ["x", "x"], ["y"])])
    assert predict(OnnxModelHandler(path), inputs="a") == [[2.0], [4.0], [6.0]]


def test_a_wrong_number_of_columns_is_told_before_data_is_read(doubler: str, tmp_path: Path) -> None:
    read: list[int] = []

    def reading(row: dict[str, Any]) -> dict[str, Any]:
        read.append(row["a"])
        return row

    rows = hr.from_items([{"a": 1, "b": 2, "c": 3, "d": 4}]).map(reading, isolation="thread", version="1")
    told = r"'x' tensor\(float\) \['\?', 3\], and was given 4 columns \(a, b, c, d\); name those to take"
    with pytest.raises(PlanError, match=told):
        rows.run_inference(OnnxModelHandler(doubler), inputs=("a", "b", "c", "d")).write_json(tmp_path / "out").run()
    assert read == []
    assert rows.run_inference(OnnxModelHandler(doubler), inputs=("a", "b", "c")).take()[0]["prediction"] == [2, 4, 6]
    with pytest.raises(PlanError, match=told):  # as it is told of a model in a store
        Predictor(InferenceSpec(handler=OnnxModelHandler(doubler), inputs=("a", "b", "c", "d")), "s").open()


def test_columns_that_may_be_right_are_not_refused(doubler: str, adder: str) -> None:
    for path, columns in ((doubler, ["x", "id"]), (doubler, ["vectors"]), (adder, ["a", "c"]), (adder, ["c"] * 5)):
        OnnxModelHandler(path).check_columns(columns)
    OnnxModelHandler(doubler, collate=lambda batch: batch).check_columns(["a", "b"])


def test_missing_inputs_are_named_with_type_and_shape(adder: str, doubler: str) -> None:
    with pytest.raises(
        PlanError, match=r"'a' tensor\(float\) \['n', 1\].*nothing is given for b. Name a column.*inputs="
    ):
        predict(OnnxModelHandler(adder), inputs=("a", "id"))
    with pytest.raises(PlanError, match=r"'x' tensor\(float\) .*, 3\], and was given 2 columns \(a, b\)"):
        predict(OnnxModelHandler(doubler), inputs=("a", "b"))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["x", "y"], r"input 'x' tensor\(float\) .*, 3\] was given str"),
        ([[1.0, 2.0], [3.0, 4.0]], r"was given an array of shape \(2, 2\)|was given an array of shape \(1, 2\)"),
        ([1.0, 2.0], r"was given an array of shape \(1,\): it takes 3 numbers a row, and there is 1; name the columns"),
    ],
)
def test_rows_that_do_not_fit_say_what_is_expected(column: list[Any], words: str, doubler: str) -> None:
    with pytest.raises(StageError, match=words):
        predict(OnnxModelHandler(doubler), pa.record_batch({"v": column}), inputs="v")


def test_a_row_of_another_length_fails_alone(doubler: str) -> None:
    batch = pa.record_batch({"v": [[1.0, 2.0, 3.0], [4.0], [5.0, 6.0, 7.0]]})
    predictor = Predictor(InferenceSpec(handler=OnnxModelHandler(doubler), inputs="v"), "s", "dead_letter")
    prediction = predictor.predict(batch)
    assert list(prediction.errors) == [1]
    assert prediction.columns["prediction"].to_pylist() == [[2.0, 4.0, 6.0], [10.0, 12.0, 14.0]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not an ONNX model: it seems to be an empty file"),
        (b"\x80\x04N.", "is not an ONNX model: it seems to be a pickle"),
        (b"\x08\x08\x12\x07tf2onnx" + b"\xff" * 50, "ONNX Runtime cannot load"),
    ],
)
def test_files_of_the_wrong_kind(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        OnnxModelHandler(tmp_path / "m.onnx").load_model()
    assert "m.onnx" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outputs": ["summ"]}, "has no output 'summ'; did you mean 'sum'.*Outputs: sum, difference"),
        ({"providers": ["CPUExecutionProvide"]}, "is not available; did you mean 'CPUExecutionProvider'"),
        (
            {"session_options": {"intra_op_num_thread": 1}},
            "no 'intra_op_num_thread'; did you mean 'intra_op_num_threads'",
        ),
    ],
)
def test_wrong_options_are_refused_at_load(options: dict[str, Any], words: str, adder: str) -> None:
    with pytest.raises(HeadraceError, match=words):
        OnnxModelHandler(adder, **options).load_model()


def test_options_reach_the_session(adder: str) -> None:
    handler = OnnxModelHandler(
        adder, threads=1, providers=["CPUExecutionProvider"], session_options={"log_severity_level": 3}
    )
    options = handler.load_model().get_session_options()
    assert (options.intra_op_num_threads, options.log_severity_level) == (1, 3)


def test_check_finds_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="there is no model file"):
        OnnxModelHandler(tmp_path / "m.onnx").check()
