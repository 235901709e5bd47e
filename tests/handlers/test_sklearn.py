from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import fsspec
import joblib
import numpy as np
import pyarrow as pa
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from headrace.errors import HeadraceError, ModelLoadError, PlanError
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.where(X[:, 0] > X[:, 1], "yes", "no")
BATCH = pa.record_batch({"id": np.arange(40), "age": X[:, 0], "spend": X[:, 1], "country": ["KR", "US"] * 20})
FRAME = BATCH.to_pandas()


def fitted() -> LogisticRegression:
    return LogisticRegression().fit(X, Y)


def save(model: Any, path: Path) -> str:
    with open(path, "wb") as file:
        pickle.dump(model, file)
    return str(path)


def predict(handler: SklearnModelHandler, batch: pa.RecordBatch = BATCH, inputs: Any = ("age", "spend")) -> list[Any]:
    predictor = Predictor(InferenceSpec(handler=handler, inputs=inputs), "score")
    return from_column(predictor.predict(batch).columns["prediction"])


@pytest.mark.parametrize("how", ["pickle", "joblib", "compressed", "joblib_as_pkl", "skops"])
def test_every_kind_of_file_gives_the_models_own_answers(how: str, tmp_path: Path) -> None:
    model = fitted()
    path = tmp_path / {"pickle": "m.pkl", "skops": "m.skops", "joblib_as_pkl": "m.pkl"}.get(how, "m.joblib")
    if how == "pickle":
        save(model, path)
    elif how == "skops":
        skops.io.dump(model, path)
    else:
        joblib.dump(model, path, compress=3 if how == "compressed" else 0)
    assert predict(SklearnModelHandler(path)) == model.predict(X).tolist()


def test_methods(tmp_path: Path) -> None:
    model = fitted()
    path = save(model, tmp_path / "m.pkl")
    np.testing.assert_array_equal(predict(SklearnModelHandler(path, method="predict_proba")), model.predict_proba(X))
    decided = predict(SklearnModelHandler(path, method="decision_function"))
    np.testing.assert_array_equal(decided, model.decision_function(X))
    for column in ("yes", 1):
        assert predict(SklearnModelHandler(path, proba_column=column)) == model.predict_proba(X)[:, 1].tolist()


def test_auto_transforms_where_there_is_no_predict(tmp_path: Path) -> None:
    scaler = StandardScaler().fit(X)
    np.testing.assert_allclose(predict(SklearnModelHandler(save(scaler, tmp_path / "m.pkl"))), scaler.transform(X))


def test_text_goes_in_as_text_and_sparse_answers_come_out(tmp_path: Path) -> None:
    texts = ["good day", "bad day", "good good"]
    counter = CountVectorizer().fit(texts)
    path = save(counter, tmp_path / "m.pkl")
    batch = pa.record_batch({"text": texts})
    for inputs in ("text", ("text",)):
        np.testing.assert_array_equal(
            predict(SklearnModelHandler(path), batch, inputs), counter.transform(texts).toarray()
        )


def test_a_column_of_vectors_is_a_matrix(tmp_path: Path) -> None:
    path = save(fitted(), tmp_path / "m.pkl")
    batch = pa.record_batch({"features": X.tolist()})
    assert predict(SklearnModelHandler(path), batch, "features") == fitted().predict(X).tolist()
    assert predict(SklearnModelHandler(path), batch, ("features",)) == fitted().predict(X).tolist()


def test_one_column_of_numbers(tmp_path: Path) -> None:
    model = LinearRegression().fit(X[:, :1], X[:, 1])
    expected = model.predict(X[:, :1])
    np.testing.assert_allclose(predict(SklearnModelHandler(save(model, tmp_path / "m.pkl")), inputs="age"), expected)


def named_model() -> Any:
    return LinearRegression().fit(FRAME[["age", "spend"]], X[:, 0] * 3 + X[:, 1])


def test_a_model_with_names_takes_its_columns_in_its_own_order(tmp_path: Path) -> None:
    model = named_model()
    handler = SklearnModelHandler(save(model, tmp_path / "m.pkl"))
    expected = model.predict(FRAME[["age", "spend"]])
    np.testing.assert_allclose(predict(handler, inputs=None), expected)
    np.testing.assert_allclose(predict(handler, inputs=("spend", "age")), expected)
    renamed = BATCH.rename_columns(["id", "a", "s", "country"])
    np.testing.assert_allclose(predict(handler, renamed, {"spend": "s", "age": "a"}), expected)


def test_a_model_with_names_refuses_other_names(tmp_path: Path) -> None:
    handler = SklearnModelHandler(save(named_model(), tmp_path / "m.pkl"))
    with pytest.raises(
        PlanError, match=r"fitted on columns age, spend; spend is not among those given \(id, age\).*inputs="
    ):
        predict(handler, inputs=("id", "age"))


def test_a_model_without_names_refuses_another_number_of_columns(tmp_path: Path) -> None:
    handler = SklearnModelHandler(save(fitted(), tmp_path / "m.pkl"))
    with pytest.raises(
        PlanError, match=r"takes 2 features and was given 4 columns \(id, age, spend, country\).*inputs="
    ):
        predict(handler, inputs=None)


def test_wrong_columns_are_told_when_the_model_is_loaded(tmp_path: Path) -> None:
    named, counted = named_model(), fitted()
    counter = CountVectorizer().fit(["good day", "bad day"])
    for model, inputs, told in (
        (named, ("id", "age"), "fitted on columns age, spend; spend is not among those given"),
        (named, {"age": "a", "spent": "s"}, "did you mean 'spent'"),
        (counted, ("id", "age", "spend"), r"takes 2 features and was given 3 columns \(id, age, spend\)"),
        (counter, ("country", "age"), "one column of texts and was given 2 columns"),
    ):
        handler = SklearnModelHandler(save(model, tmp_path / "m.pkl"))
        with pytest.raises(PlanError, match=told):
            Predictor(InferenceSpec(handler=handler, inputs=inputs), "s").open()


def test_what_may_be_right_is_not_refused_when_the_model_is_loaded(tmp_path: Path) -> None:
    """One column may hold vectors, and of rows as they come nothing is known yet."""
    for inputs in (None, "features", ("features",), ("age", "spend")):
        handler = SklearnModelHandler(save(fitted(), tmp_path / "m.pkl"))
        Predictor(InferenceSpec(handler=handler, inputs=inputs), "s").open()


def test_one_column_where_the_model_takes_more(tmp_path: Path) -> None:
    named = LogisticRegression().fit(FRAME[["age", "spend"]], Y)
    for model, words in ((fitted(), "takes 2 features and"), (named, r"takes 2 features \(age, spend\) and")):
        with pytest.raises(HeadraceError, match=f"{words} was given one column of numbers.*inputs="):
            predict(SklearnModelHandler(save(model, tmp_path / "m.pkl")), inputs="age")


def test_several_columns_where_the_model_takes_texts(tmp_path: Path) -> None:
    counter = CountVectorizer().fit(["good day", "bad day"])
    for model in (counter, make_pipeline(counter, StandardScaler(with_mean=False))):
        with pytest.raises(
            HeadraceError, match=r"one column of texts and was given 2 columns \(country, age\).*inputs="
        ):
            predict(SklearnModelHandler(save(model, tmp_path / "m.pkl")), inputs=("country", "age"))


def test_a_pipeline_that_picks_columns_by_name_gets_a_frame(tmp_path: Path) -> None:
    columns = ColumnTransformer([("num", StandardScaler(), ["age"]), ("cat", OneHotEncoder(), ["country"])])
    model = make_pipeline(columns, LogisticRegression()).fit(FRAME[["age", "country"]], Y)
    handler = SklearnModelHandler(save(model, tmp_path / "m.pkl"))
    expected = model.predict(FRAME[["age", "country"]]).tolist()
    assert predict(handler, inputs=None) == expected
    assert predict(handler, inputs=("country", "age")) == expected
    numbers = ColumnTransformer([("num", StandardScaler(), ["spend", "age"])])
    model = make_pipeline(numbers, LogisticRegression()).fit(FRAME[["age", "spend"]], Y)
    handler = SklearnModelHandler(save(model, tmp_path / "numbers.pkl"))
    assert predict(handler, inputs=None) == model.predict(FRAME).tolist()


def test_names_cause_no_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    predict(SklearnModelHandler(save(named_model(), tmp_path / "m.pkl")), inputs=None)
    assert [str(w.message) for w in recwarn if "feature names" in str(w.message)] == []


def test_rows_with_nulls_fail_alone(tmp_path: Path) -> None:
    handler = SklearnModelHandler(save(fitted(), tmp_path / "m.pkl"))
    batch = pa.record_batch({"age": [0.5, None, 1.0], "spend": [1.0, 2.0, 0.5]})
    predictor = Predictor(InferenceSpec(handler=handler, inputs=("age", "spend")), "score", "dead_letter")
    prediction = predictor.predict(batch)
    assert list(prediction.errors) == [1]
    assert prediction.columns["prediction"].to_pylist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a scikit-learn model.*: it seems to be an empty file"),
        (b"<html>not found</html>", "it seems to be a web page"),
        (b"\x08\x08\x12\x07tf2onnx", "it seems to be an ONNX model"),
        (pickle.dumps({"a": 1}), "holds a dict, which has no method 'predict'; SklearnModelHandler runs scikit-learn"),
        (pickle.dumps(LinearRegression())[:40], "looks like a pickle, but cannot be loaded: .*it may be damaged"),
        (b"\x80\x04cno_such_package\nThing\n.", "saved with the package 'no_such_package', which is not installed"),
    ],
)
def test_files_of_the_wrong_kind(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        SklearnModelHandler(path).load_model()
    assert str(path) in str(caught.value)


def test_a_model_without_the_method(tmp_path: Path) -> None:
    path = save(LinearRegression(), tmp_path / "m.pkl")
    with pytest.raises(ModelLoadError, match="holds a LinearRegression, which has no method 'predict_proba'"):
        SklearnModelHandler(path, method="predict_proba").load_model()
    path = save(fitted(), tmp_path / "m.pkl")
    with pytest.raises(ModelLoadError, match="proba_column='maybe' is none of the model's classes: no, yes"):
        SklearnModelHandler(path, proba_column="maybe").load_model()


def test_unsafe_files_come_from_local_paths_or_by_the_users_word(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/m.pkl", pickle.dumps(fitted()))
    memory.pipe("/disguised.skops", pickle.dumps(fitted()))
    with pytest.raises(PlanError, match="could run code of whoever wrote it.*trust_remote_code=True"):
        SklearnModelHandler("memory://m.pkl").check()
    with pytest.raises(ModelLoadError, match="is a pickle, not a skops file; pass trust_remote_code=True"):
        SklearnModelHandler("memory://disguised.skops", cache_dir=str(tmp_path)).load_model()
    trusted = SklearnModelHandler("memory://m.pkl", trust_remote_code=True, cache_dir=str(tmp_path))
    assert predict(trusted) == fitted().predict(X).tolist()


class Own(LinearRegression):  # type: ignore[misc]
    """A type that skops does not know."""


def test_skops_files_with_unknown_types_say_which(tmp_path: Path) -> None:
    skops.io.dump(Own().fit(X, X[:, 0]), tmp_path / "m.skops")
    with pytest.raises(
        ModelLoadError, match=r"types that skops does not trust: .*\.Own; if you do, pass trusted_types="
    ):
        SklearnModelHandler(tmp_path / "m.skops").load_model()
    name = f"{Own.__module__}.Own"
    assert len(predict(SklearnModelHandler(tmp_path / "m.skops", trusted_types=[name]))) == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "predct"}, "method='predct' is none of .*did you mean 'predict'"),
        ({"method": "predict", "proba_column": 1}, "proba_column= goes with method='predict_proba'"),
    ],
)
def test_check_finds_wrong_options(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=words):
        SklearnModelHandler(save(fitted(), tmp_path / "m.pkl"), **options).check()


def test_check_finds_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="there is no model file"):
        SklearnModelHandler(tmp_path / "m.pkl").check()
