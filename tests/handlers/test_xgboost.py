"""XGBoost models, saved and run here: the handler's answers are those of the framework used directly."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, PlanError
from headrace.handlers.xgboost import XGBoostModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

xgboost = pytest.importorskip("xgboost")
pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(size=120),
        "spend": RNG.normal(size=120),
        "city": RNG.choice(["Oslo", "Rome", "Bern"], 120),
        "floor": RNG.integers(0, 4, 120),
    }
)
FRAME.loc[::9, "age"] = np.nan
YES = ((FRAME.age > 0) ^ (FRAME.city == "Rome")).astype(int)
KIND = FRAME.floor % 3
NUMBERS = FRAME[["age", "spend"]]
CODED = FRAME.astype({"city": "category"})
BATCH = pa.record_batch(
    {
        "id": np.arange(120),
        **{name: pa.array(FRAME[name], from_pandas=True) for name in ("spend", "city", "floor", "age")},
    }
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, str]]:
    """Train a model and save it as a file."""
    folder = tmp_path_factory.mktemp("models")

    def train(data: Any, label: Any, suffix: str = ".ubj", rounds: int = 4, **parameters: Any) -> tuple[Any, str]:
        matrix = xgboost.DMatrix(data, label=label, enable_categorical=True)
        model = xgboost.train({"max_depth": 3, "nthread": 1, **parameters}, matrix, rounds)
        path = str(folder / f"m{len(list(folder.iterdir()))}{suffix}")
        model.save_model(path)
        return model, path

    return train


def predict(handler: XGBoostModelHandler, batch: pa.RecordBatch = BATCH, inputs: Any = None) -> np.ndarray:
    predictor = Predictor(InferenceSpec(handler=handler, inputs=inputs), "score")
    return np.array(from_column(predictor.predict(batch).columns["prediction"]))


@pytest.mark.parametrize("suffix", [".json", ".ubj"])
@pytest.mark.parametrize("inputs", [None, ("spend", "age"), {"spend": "spend", "age": "age"}])
def test_features_go_by_name_with_nulls_as_missing(trained: Any, suffix: str, inputs: Any) -> None:
    model, path = trained(NUMBERS, YES, suffix, objective="binary:logistic")
    expected = model.predict(xgboost.DMatrix(NUMBERS))
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path), inputs=inputs), expected)
    part = predict(XGBoostModelHandler(path), BATCH.slice(37, 5), inputs=inputs)
    np.testing.assert_array_equal(part, expected[37:42])


def test_methods_of_two_classes(trained: Any) -> None:
    model, path = trained(NUMBERS, YES, objective="binary:logistic")
    matrix, chance = xgboost.DMatrix(NUMBERS), model.predict(xgboost.DMatrix(NUMBERS))
    expected = {
        "predict": chance,
        "predict_class": (chance > 0.5).astype(int),
        "predict_proba": np.column_stack([1 - chance, chance]),
        "margin": model.predict(matrix, output_margin=True),
        "leaf": model.predict(matrix, pred_leaf=True),
        "contributions": model.predict(matrix, pred_contribs=True),
    }
    for method, values in expected.items():
        np.testing.assert_array_equal(predict(XGBoostModelHandler(path, method=method)), values, err_msg=method)


def test_a_scikit_learn_style_estimator_saved_natively(tmp_path: Path) -> None:
    estimator = xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(NUMBERS, KIND)
    estimator.save_model(tmp_path / "m.json")
    for method, values in {
        "predict_class": estimator.predict(NUMBERS),
        "predict_proba": estimator.predict_proba(NUMBERS),
    }.items():
        np.testing.assert_array_equal(predict(XGBoostModelHandler(tmp_path / "m.json", method=method)), values)


@pytest.mark.parametrize("objective", ["multi:softmax", "binary:hinge", "binary:logitraw"])
def test_classes_of_objectives_that_have_no_probabilities(trained: Any, objective: str) -> None:
    label, parameters = (KIND, {"num_class": 3}) if objective == "multi:softmax" else (YES, {})
    model, path = trained(NUMBERS, label, objective=objective, **parameters)
    values = model.predict(xgboost.DMatrix(NUMBERS))
    expected = values > 0 if objective == "binary:logitraw" else values
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path, method="predict_class")), expected)
    with pytest.raises(ModelLoadError, match=f"objective {objective} gives no probabilities"):
        XGBoostModelHandler(path, method="predict_proba").load_model()


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("method", ["predict", "leaf"])
def test_categories_are_found_by_their_text(trained: Any, coded: bool, method: str) -> None:
    model, path = trained(CODED, YES)
    city = BATCH["city"].dictionary_encode() if coded else BATCH["city"]
    batch = BATCH.set_column(2, "city", city)
    matrix = xgboost.DMatrix(CODED, enable_categorical=True)
    expected = model.predict(matrix, pred_leaf=method == "leaf")
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path, method=method), batch), expected)
    np.testing.assert_array_equal(
        predict(XGBoostModelHandler(path, method=method), batch.slice(50, 7)), expected[50:57]
    )


def test_unknown_and_missing_categories_are_as_the_framework_has_them(trained: Any) -> None:
    model, path = trained(CODED, YES)
    odd = BATCH.slice(0, 3).set_column(2, "city", pa.array(["Rome", "Paris", None]))
    frame = CODED[:3].assign(city=pd.Categorical(["Rome", "Paris", None]))
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path), odd), model.inplace_predict(frame))
    nothing = odd.set_column(2, "city", pa.nulls(3))
    frame = CODED[:3].assign(city=pd.Categorical([None] * 3, categories=["Rome"]))
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path), nothing), model.inplace_predict(frame))


def test_categories_that_are_numbers(trained: Any) -> None:
    coded = FRAME[["age", "floor"]].astype({"floor": "category"})
    model, path = trained(coded, FRAME.spend)
    expected = model.predict(xgboost.DMatrix(coded, enable_categorical=True))
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path)), expected)
    wrong = BATCH.set_column(3, "floor", pa.array(["1"] * 120))
    with pytest.raises(HeadraceError, match="feature 'floor' takes categories of the type int64 and was given text"):
        predict(XGBoostModelHandler(path), wrong)


def test_codes_of_a_model_that_keeps_no_categories(tmp_path: Path) -> None:
    matrix = xgboost.DMatrix(FRAME[["age", "floor"]].to_numpy(), FRAME.spend, feature_types=["float", "c"],
                             enable_categorical=True)  # fmt: skip
    model = xgboost.train({"nthread": 1}, matrix, 3)
    model.save_model(tmp_path / "m.ubj")
    answers = predict(XGBoostModelHandler(tmp_path / "m.ubj"), inputs=("age", "floor"))
    np.testing.assert_array_equal(answers, model.predict(matrix))
    vectors = pa.record_batch({"v": FRAME[["age", "floor"]].to_numpy().tolist()})
    for inputs in ("v", None):
        np.testing.assert_array_equal(predict(XGBoostModelHandler(tmp_path / "m.ubj"), vectors, inputs), answers)


def test_rounds_and_missing_values(trained: Any, tmp_path: Path) -> None:
    model, path = trained(NUMBERS, YES)
    matrix = xgboost.DMatrix(NUMBERS)
    for method, asked in {"predict": {}, "leaf": {"pred_leaf": True}}.items():
        rounds = (0, 2) if asked else (1, 3)
        handler = XGBoostModelHandler(path, method=method, iteration_range=rounds)
        np.testing.assert_array_equal(predict(handler), model.predict(matrix, iteration_range=rounds, **asked))
    with pytest.raises(ModelLoadError, match=r"iteration_range=\(0, 5\) goes beyond the 4 rounds of .*ubj"):
        XGBoostModelHandler(path, iteration_range=(0, 5)).load_model()
    with pytest.raises(PlanError, match="takes the first rounds only"):
        XGBoostModelHandler(path, method="leaf", iteration_range=(1, 3)).check()
    marked = pa.record_batch({"age": pa.array(NUMBERS.age.fillna(-999.0)), "spend": pa.array(NUMBERS.spend)})
    np.testing.assert_array_equal(predict(XGBoostModelHandler(path, missing=-999.0), marked), model.predict(matrix))
    stopped = xgboost.train({"eta": 1}, xgboost.DMatrix(NUMBERS, YES), 30, early_stopping_rounds=2,
                            evals=[(xgboost.DMatrix(NUMBERS[:9], 1 - YES[:9]), "e")], verbose_eval=False)  # fmt: skip
    stopped.save_model(tmp_path / "s.ubj")
    assert stopped.best_iteration < stopped.num_boosted_rounds() - 1
    best = stopped.predict(matrix, iteration_range=(0, stopped.best_iteration + 1))
    np.testing.assert_array_equal(predict(XGBoostModelHandler(tmp_path / "s.ubj", iteration_range="best")), best)
    with pytest.raises(ModelLoadError, match="trained without early stopping"):
        XGBoostModelHandler(path, iteration_range="best").load_model()


def test_a_linear_booster(trained: Any) -> None:
    model, path = trained(NUMBERS.fillna(0), YES, booster="gblinear", objective="binary:logistic")
    batch = pa.record_batch({"age": pa.array(NUMBERS.age.fillna(0)), "spend": pa.array(NUMBERS.spend)})
    for method, margin in (("predict", False), ("margin", True)):
        expected = model.predict(xgboost.DMatrix(NUMBERS.fillna(0)), output_margin=margin)
        np.testing.assert_allclose(predict(XGBoostModelHandler(path, method=method), batch), expected, rtol=1e-6)


def test_threads_are_those_given(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = trained(NUMBERS, YES)
    assert '"nthread":"3"' in XGBoostModelHandler(path, threads=3).load_model().save_config()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert '"nthread":"1"' in XGBoostModelHandler(path).load_model().save_config()


def test_a_missing_column_is_told_before_data_is_read(trained: Any, tmp_path: Path) -> None:
    _, path = trained(NUMBERS, YES)
    (tmp_path / "in.csv").write_text("id,ages,spend\n1,2,3\n")
    job = hr.read_csv(str(tmp_path / "in.csv")).run_inference(XGBoostModelHandler(path)).write_json(str(tmp_path / "o"))
    with pytest.raises(PlanError, match=r"age is not among those given \(id, ages, spend\); did you mean 'ages'"):
        job.run()
    assert not (tmp_path / "o").exists()
    mapped = hr.read_csv(str(tmp_path / "in.csv")).run_inference(
        XGBoostModelHandler(path), inputs={"spend": "spend", "age": "ages"}
    )
    assert len(mapped.take()) == 1


def test_what_is_no_model_of_xgboost_says_what_it_seems_to_be(tmp_path: Path) -> None:
    with open(tmp_path / "m.pkl", "wb") as file:
        pickle.dump({"a": 1}, file)
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "m.ubj").write_bytes(b"PAR1xxxx")
    with pytest.raises(ModelLoadError, match="seems to be a pickle, which could run code.*SklearnModelHandler"):
        XGBoostModelHandler(tmp_path / "m.pkl").load_model()
    with pytest.raises(ModelLoadError, match="seems to be a JSON file"):
        XGBoostModelHandler(tmp_path / "m.json").load_model()
    with pytest.raises(ModelLoadError, match="seems to be a Parquet file"):
        XGBoostModelHandler(tmp_path / "m.ubj").load_model()
    with pytest.raises(ModelLoadError, match="there is no model file .*none.ubj; did you mean 'm.ubj'"):
        XGBoostModelHandler(tmp_path / "none.ubj").check()


def test_wrong_settings(trained: Any) -> None:
    _, path = trained(NUMBERS, FRAME.spend)
    with pytest.raises(PlanError, match="method='predict_prob' is none of .*did you mean 'predict_proba'"):
        XGBoostModelHandler(path, method="predict_prob").check()  # type: ignore[arg-type]
    for wrong in ((3, 1), (0,), (0, 1.5)):
        with pytest.raises(PlanError, match="must be two whole numbers"):
            XGBoostModelHandler(path, iteration_range=wrong).check()  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="threads is 0"):
        XGBoostModelHandler(path, threads=0).check()
    with pytest.raises(PlanError, match="neither 'best' nor"):
        XGBoostModelHandler(path, iteration_range="bets")  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match="needs a model of classes, and this one's objective is reg:squarederror"):
        XGBoostModelHandler(path, method="predict_proba").load_model()


def test_from_the_command_line_kind(trained: Any) -> None:
    from headrace.handlers.registry import make_handler

    model, path = trained(NUMBERS, YES)
    handler = make_handler(f"xgboost:{path}", method="margin", iteration_range=[0, 2])
    expected = model.predict(xgboost.DMatrix(NUMBERS), output_margin=True, iteration_range=(0, 2))
    np.testing.assert_array_equal(predict(handler), expected)  # type: ignore[arg-type]
