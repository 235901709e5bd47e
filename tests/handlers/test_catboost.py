"""CatBoost models, saved and run here: the handler's answers are those of the framework used directly."""

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
from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.catboost import CatBoostModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column

catboost = pytest.importorskip("catboost")
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
YES = np.where((FRAME.age > 0) ^ (FRAME.city == "Rome"), "yes", "no")
NUMBERS = FRAME[["age", "spend"]]
CATEGORIES = ["city", "floor"]
SETTINGS = {"iterations": 4, "depth": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False}
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

    def train(
        data: Any, label: Any, kind: str = "CatBoostClassifier", suffix: str = ".cbm", fit: Any = None, **settings: Any
    ) -> tuple[Any, str]:
        model = getattr(catboost, kind)(**SETTINGS, **settings).fit(data, label, **(fit or {}))
        path = str(folder / f"m{len(list(folder.iterdir()))}{suffix}")
        model.save_model(path, format=suffix[1:])
        return model, path

    return train


def predict(handler: CatBoostModelHandler, batch: pa.RecordBatch = BATCH, inputs: Any = None) -> np.ndarray:
    predictor = Predictor(InferenceSpec(handler=handler, inputs=inputs), "score")
    return np.array(from_column(predictor.predict(batch).columns["prediction"]))


@pytest.mark.parametrize("suffix", [".cbm", ".json"])
@pytest.mark.parametrize("inputs", [None, ("spend", "age")])
def test_features_go_by_name_with_nulls_as_missing(trained: Any, suffix: str, inputs: Any) -> None:
    model, path = trained(NUMBERS, YES, suffix=suffix)
    assert predict(CatBoostModelHandler(path), inputs=inputs).tolist() == model.predict(NUMBERS).tolist()
    part = predict(CatBoostModelHandler(path, method="margin"), BATCH.slice(37, 5), inputs)
    # Fewer rows may be summed in another order.
    np.testing.assert_allclose(part, model.predict(NUMBERS, prediction_type="RawFormulaVal")[37:42], rtol=1e-14)


def test_methods(trained: Any) -> None:
    model, path = trained(FRAME, YES, fit={"cat_features": CATEGORIES})
    expected = {
        "predict": model.predict(FRAME),
        "predict_class": model.predict(FRAME),
        "predict_proba": model.predict_proba(FRAME),
        "margin": model.predict(FRAME, prediction_type="RawFormulaVal"),
        "leaf": model.calc_leaf_indexes(FRAME),
        "contributions": model.get_feature_importance(catboost.Pool(FRAME, cat_features=CATEGORIES), type="ShapValues"),
    }
    for method, values in expected.items():
        np.testing.assert_array_equal(predict(CatBoostModelHandler(path, method=method)), values, err_msg=method)


def test_several_classes_are_one_label_a_row(trained: Any) -> None:
    model, path = trained(NUMBERS, FRAME.floor % 3)
    answers = predict(CatBoostModelHandler(path))
    assert answers.shape == (120,)
    np.testing.assert_array_equal(answers, model.predict(NUMBERS)[:, 0])
    np.testing.assert_array_equal(
        predict(CatBoostModelHandler(path, method="predict_proba")), model.predict_proba(NUMBERS)
    )


@pytest.mark.parametrize("kind", ["CatBoostRegressor", "CatBoostRanker"])
def test_numbers_as_the_models_own_class_predicts_them(trained: Any, kind: str) -> None:
    settings = {"loss_function": "Poisson"} if kind == "CatBoostRegressor" else {"loss_function": "YetiRank"}
    fit = {} if kind == "CatBoostRegressor" else {"group_id": np.repeat(np.arange(12), 10)}
    model, path = trained(NUMBERS, FRAME.floor, kind=kind, fit=fit, **settings)
    np.testing.assert_array_equal(predict(CatBoostModelHandler(path)), model.predict(NUMBERS))
    with pytest.raises(ModelLoadError, match="needs a model of classes"):
        CatBoostModelHandler(path, method="predict_class").load_model()


@pytest.mark.parametrize("coded", [False, True])
def test_categories_known_and_unknown(trained: Any, coded: bool) -> None:
    model, path = trained(FRAME, YES, fit={"cat_features": CATEGORIES})
    cities = pa.array(["Paris", *FRAME.city[1:]])
    batch = BATCH.set_column(2, "city", cities.dictionary_encode() if coded else cities)
    frame = FRAME.assign(city=cities.to_pylist())
    answers = predict(CatBoostModelHandler(path, method="margin"), batch)
    np.testing.assert_array_equal(answers, model.predict(frame, prediction_type="RawFormulaVal"))


def test_a_null_among_categories_fails_its_row(trained: Any) -> None:
    model, path = trained(FRAME, YES, fit={"cat_features": CATEGORIES})
    cities, floors = FRAME.city.tolist(), FRAME.floor.tolist()
    cities[3] = floors[7] = None
    batch = BATCH.set_column(2, "city", pa.array(cities)).set_column(3, "floor", pa.array(floors))
    spec = InferenceSpec(handler=CatBoostModelHandler(path, method="margin"))
    prediction = Predictor(spec, "s", "dead_letter").predict(batch)
    assert list(prediction.errors) == [3, 7]
    assert "cat_features must be integer or string" in str(prediction.errors[3])
    expected = np.delete(model.predict(FRAME, prediction_type="RawFormulaVal"), [3, 7])
    np.testing.assert_array_equal(prediction.columns["prediction"].to_numpy(), expected)


def test_text_and_embeddings(trained: Any) -> None:
    texts = [f"{city} is nice" for city in FRAME.city]
    vectors = RNG.normal(size=(120, 3)).astype("float32")
    frame = pd.DataFrame({"age": FRAME.age, "words": texts, "vector": list(vectors)})
    fit = {"text_features": ["words"], "embedding_features": ["vector"]}
    model, path = trained(frame, YES, fit=fit)
    batch = pa.record_batch({"vector": pa.array(list(vectors)), "words": texts, "age": BATCH["age"]})
    answers = predict(CatBoostModelHandler(path, method="margin"), batch)
    np.testing.assert_array_equal(answers, model.predict(frame, prediction_type="RawFormulaVal"))


def test_columns_of_a_model_without_names_go_by_number(trained: Any) -> None:
    matrix = NUMBERS.to_numpy()
    model, path = trained(matrix, YES)
    expected = model.predict(matrix, prediction_type="RawFormulaVal")
    handler = CatBoostModelHandler(path, method="margin")
    np.testing.assert_array_equal(predict(handler, inputs=("age", "spend")), expected)
    np.testing.assert_array_equal(predict(handler, pa.record_batch({"v": matrix.tolist()}), "v"), expected)


def test_trees_that_are_asked(trained: Any) -> None:
    model, path = trained(NUMBERS, YES)
    asked = {"ntree_start": 1, "ntree_end": 3}
    handler = CatBoostModelHandler(path, method="margin", iteration_range=(1, 3))
    np.testing.assert_array_equal(predict(handler), model.predict(NUMBERS, prediction_type="RawFormulaVal", **asked))
    leaves = predict(CatBoostModelHandler(path, method="leaf", iteration_range=(1, 3)))
    np.testing.assert_array_equal(leaves, model.calc_leaf_indexes(NUMBERS, **asked))
    beyond = (0, model.tree_count_ + 1)
    with pytest.raises(ModelLoadError, match=f"goes beyond the {model.tree_count_} rounds"):
        CatBoostModelHandler(path, iteration_range=beyond).load_model()


def test_a_missing_column_is_told_before_data_is_read(trained: Any, tmp_path: Path) -> None:
    _, path = trained(NUMBERS, YES)
    (tmp_path / "in.csv").write_text("id,age,spent\n1,2,3\n")
    ds = hr.read_csv(str(tmp_path / "in.csv")).run_inference(CatBoostModelHandler(path))
    with pytest.raises(PlanError, match=r"spend is not among those given .*; did you mean 'spent'"):
        ds.write_json(str(tmp_path / "out")).run()
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_of_catboost_says_what_it_seems_to_be(tmp_path: Path) -> None:
    with open(tmp_path / "m.pkl", "wb") as file:
        pickle.dump({"a": 1}, file)
    (tmp_path / "m.cbm").write_text("words")
    with pytest.raises(ModelLoadError, match="seems to be a pickle, which could run code.*SklearnModelHandler"):
        CatBoostModelHandler(tmp_path / "m.pkl").load_model()
    with pytest.raises(ModelLoadError, match="seems to be a text file; catboost says: .*ncorrect model file"):
        CatBoostModelHandler(tmp_path / "m.cbm").load_model()


def test_settings_that_do_not_go_together(trained: Any) -> None:
    _, path = trained(NUMBERS, YES)
    with pytest.raises(PlanError, match="contributions are those of all trees"):
        CatBoostModelHandler(path, method="contributions", iteration_range=(0, 2)).check()
    with pytest.raises(PlanError, match="task_type='gpu' is neither"):
        CatBoostModelHandler(path, task_type="gpu").check()  # type: ignore[arg-type]
