"""LightGBM models, saved and run here: the handler's answers are those of the framework used directly."""

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
from headrace.handlers.lightgbm import LightGBMModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

lightgbm = pytest.importorskip("lightgbm")
pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(size=240),
        "spend": RNG.normal(size=240),
        "city": RNG.choice(["Oslo", "Rome", "Bern"], 240),
        "floor": RNG.integers(0, 4, 240),
        "number": RNG.integers(2**40, 2**53, 240),
    }
)
FRAME.loc[::9, "age"] = np.nan
YES = ((FRAME.age > 0) ^ (FRAME.city == "Rome")).astype(int)
KIND = FRAME.floor % 3
NUMBERS = FRAME[["age", "spend", "number"]]
BATCH = pa.record_batch(
    {
        "id": np.arange(240),
        **{name: pa.array(FRAME[name], from_pandas=True) for name in ("spend", "number", "city", "floor", "age")},
    }
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, str]]:
    """Train a model and save it as a file."""
    folder = tmp_path_factory.mktemp("models")

    def train(data: Any, label: Any, **parameters: Any) -> tuple[Any, str]:
        settings = {"objective": "binary", "num_leaves": 6, "min_data_per_group": 5, "num_threads": 1, "verbose": -1}
        model = lightgbm.train({**settings, **parameters}, lightgbm.Dataset(data, label=label), 4)
        path = str(folder / f"m{len(list(folder.iterdir()))}.txt")
        model.save_model(path)
        return model, path

    return train


def predict(handler: LightGBMModelHandler, batch: pa.RecordBatch = BATCH, inputs: Any = None) -> np.ndarray:
    predictor = Predictor(InferenceSpec(handler=handler, inputs=inputs), "score")
    return np.array(from_column(predictor.predict(batch).columns["prediction"]))


@pytest.mark.parametrize("inputs", [None, ("number", "spend", "age")])
def test_features_go_by_name_with_nulls_as_missing(trained: Any, inputs: Any) -> None:
    model, path = trained(NUMBERS, YES)
    expected = model.predict(NUMBERS)
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), inputs=inputs), expected)
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), BATCH.slice(37, 5)), expected[37:42])


def test_methods_of_two_classes(trained: Any) -> None:
    model, path = trained(NUMBERS, YES)
    chance = model.predict(NUMBERS)
    expected = {
        "predict": chance,
        "predict_class": (chance > 0.5).astype(int),
        "predict_proba": np.column_stack([1 - chance, chance]),
        "margin": model.predict(NUMBERS, raw_score=True),
        "leaf": model.predict(NUMBERS, pred_leaf=True),
        "contributions": model.predict(NUMBERS, pred_contrib=True),
    }
    for method, values in expected.items():
        np.testing.assert_array_equal(predict(LightGBMModelHandler(path, method=method)), values, err_msg=method)


def test_a_scikit_learn_style_estimator_saved_natively(tmp_path: Path) -> None:
    estimator = lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, n_jobs=1, verbose=-1).fit(NUMBERS, KIND)
    estimator.booster_.save_model(tmp_path / "m.txt")
    for method, values in {
        "predict_class": estimator.predict(NUMBERS),
        "predict_proba": estimator.predict_proba(NUMBERS),
    }.items():
        np.testing.assert_array_equal(predict(LightGBMModelHandler(tmp_path / "m.txt", method=method)), values)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_categories_are_found_by_their_text(trained: Any, coded: bool, ordered: bool) -> None:
    kind = pd.CategoricalDtype(["Rome", "Bern", "Oslo"], ordered=ordered)
    frame = FRAME.astype({"city": kind})
    model, path = trained(frame, YES)
    expected = model.predict(frame)
    assert len(set(model.predict(frame.assign(city=frame.city.cat.rename_categories(["Oslo", "Rome", "Bern"]))))) > 1
    batch = BATCH.set_column(3, "city", BATCH["city"].dictionary_encode()) if coded else BATCH
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), batch), expected)
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), batch.slice(50, 1)), expected[50:51])


def test_unknown_and_missing_categories_are_as_the_framework_has_them(trained: Any) -> None:
    frame = FRAME.astype({"city": "category"})
    model, path = trained(frame, YES)
    for cities in (["Rome", "Paris", None], [None] * 3):
        odd = BATCH.slice(0, 3).set_column(3, "city", pa.array(cities, pa.string()))
        expected = model.predict(frame[:3].assign(city=pd.Categorical(cities)))
        np.testing.assert_array_equal(predict(LightGBMModelHandler(path), odd), expected)


def test_categories_that_are_numbers_and_several_of_them(trained: Any) -> None:
    frame = FRAME.astype({"city": "category", "floor": "category"})
    model, path = trained(frame, FRAME.spend, objective="regression")
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path)), model.predict(frame))
    wrong = BATCH.set_column(4, "floor", pa.array(["1"] * 240))
    with pytest.raises(HeadraceError, match="feature 'floor' takes categories of the type int64 and was given text"):
        predict(LightGBMModelHandler(path), wrong)


def test_columns_of_a_model_without_names_go_by_number(trained: Any) -> None:
    matrix = NUMBERS.to_numpy()
    model, path = trained(matrix, YES)
    expected = model.predict(matrix)
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), inputs=("age", "spend", "number")), expected)
    narrow = matrix.astype("float32")
    vectors = pa.record_batch({"v": pa.array(list(narrow), pa.list_(pa.float32()))})
    np.testing.assert_array_equal(predict(LightGBMModelHandler(path), vectors), model.predict(narrow))
    with pytest.raises(PlanError, match="takes 3 features and was given 6 columns"):
        hr.from_arrow(pa.table(BATCH)).run_inference(LightGBMModelHandler(path)).take()


def test_rounds_and_further_parameters(trained: Any) -> None:
    model, path = trained(NUMBERS, YES)
    handler = LightGBMModelHandler(path, iteration_range=(1, 3))
    np.testing.assert_array_equal(predict(handler), model.predict(NUMBERS, start_iteration=1, num_iteration=2))
    for beyond in ((0, 5), (7, 9)):  # LightGBM would answer with all rounds, or with none
        with pytest.raises(ModelLoadError, match="goes beyond the 4 rounds"):
            LightGBMModelHandler(path, iteration_range=beyond).load_model()
    early = {"pred_early_stop": True, "pred_early_stop_freq": 1, "pred_early_stop_margin": 0.01}
    stopped = predict(LightGBMModelHandler(path, predict_params=early))
    np.testing.assert_array_equal(stopped, model.predict(NUMBERS, **early))
    assert (stopped != model.predict(NUMBERS)).any()


def test_a_missing_column_is_told_before_data_is_read(trained: Any, tmp_path: Path) -> None:
    _, path = trained(NUMBERS, YES)
    (tmp_path / "in.csv").write_text("id,age,spent,number\n1,2,3,4\n")
    ds = hr.read_csv(str(tmp_path / "in.csv")).run_inference(LightGBMModelHandler(path))
    with pytest.raises(PlanError, match=r"spend is not among those given .*; did you mean 'spent'"):
        ds.write_json(str(tmp_path / "out")).run()
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_of_lightgbm_says_what_it_seems_to_be(tmp_path: Path) -> None:
    with open(tmp_path / "m.pkl", "wb") as file:
        pickle.dump({"a": 1}, file)
    (tmp_path / "m.txt").write_text("words")
    with pytest.raises(ModelLoadError, match="seems to be a pickle, which could run code.*SklearnModelHandler"):
        LightGBMModelHandler(tmp_path / "m.pkl").load_model()
    with pytest.raises(ModelLoadError, match="seems to be a text file; lightgbm says: "):
        LightGBMModelHandler(tmp_path / "m.txt").load_model()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_breaks_off_is_an_error_rather_than_the_end_of_the_process(
    trained: Any, tmp_path: Path, share: float
) -> None:
    _, path = trained(NUMBERS, YES)
    trees, end, _ = Path(path).read_text().partition("end of trees")
    assert end
    (tmp_path / "torn.txt").write_text(trees[: int(len(trees) * share)])
    with pytest.raises(ModelLoadError, match="torn.txt breaks off before the end of its trees"):
        LightGBMModelHandler(tmp_path / "torn.txt").load_model()


def test_classes_are_asked_of_models_that_have_them(trained: Any) -> None:
    _, path = trained(NUMBERS, FRAME.spend, objective="regression")
    with pytest.raises(ModelLoadError, match="needs a model of classes, and this one's objective is regression"):
        LightGBMModelHandler(path, method="predict_class").load_model()
