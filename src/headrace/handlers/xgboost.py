"""XGBoost models: JSON and UBJSON files."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.boosting import (
    BoostingModelHandler,
    Features,
    Method,
    classes_of,
    probabilities_of,
    without_classes,
)
from headrace.handlers.features import described, number_matrix, numbers
from headrace.records.types import is_text

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray


class XGBoostModelHandler(BoostingModelHandler):
    """Runs an XGBoost model saved by `save_model` (.json, .ubj), of a Booster or of a scikit-learn style estimator.

    The answer is that of `method`: "predict" is `Booster.predict`, (n,) or (n, classes); "predict_class" the number of
    the likeliest class and "predict_proba" a probability for every class, as `XGBClassifier` gives them; "margin" the
    untransformed sum; "leaf" a leaf for every tree; "contributions" the SHAP values of every feature and the bias.

    Features go by name, in whatever order they come; without `inputs=` the model's own are taken. Nulls are missing
    values, as are NaN and `missing`. A feature of categories takes text, or values of the type that it was fitted on;
    of unknown categories XGBoost decides. `iteration_range` bounds the rounds of boosting: (0, 50) are the first 50,
    "best" those up to the best one of early stopping. `device` is XGBoost's, such as "cuda:0"; `threads` are this
    process's share of the cores if not given.

    Raises:
        ModelLoadError: the file is no XGBoost model, or has no classes where `method` asks for them.

    >>> XGBoostModelHandler("models/churn.ubj", method="predict_proba").model_id
    'churn.ubj'
    """

    framework: ClassVar[str] = "xgboost"
    files: ClassVar[str] = ".json or .ubj, as save_model writes them"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: Method = "predict",
        iteration_range: tuple[int, int] | Literal["best"] | None = None,
        missing: float = math.nan,
        device: str | None = None,
        threads: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        best = iteration_range == "best"
        rounds = None if isinstance(iteration_range, str) else iteration_range
        super().__init__(path, method=method, iteration_range=rounds, threads=threads, cache_dir=cache_dir)
        if isinstance(iteration_range, str) and not best:
            raise PlanError(f"XGBoostModelHandler: iteration_range={iteration_range!r} is neither 'best' nor (0, 100)")
        self.best, self.missing, self.device = best, missing, device

    def check(self) -> None:
        super().check()
        if self.method in ("leaf", "contributions") and self.iteration_range is not None and self.iteration_range[0]:
            raise PlanError(
                f"XGBoostModelHandler: method={self.method!r} takes the first rounds only, as in iteration_range=(0, "
                f"{self.iteration_range[1]}), and was given {self.iteration_range}"
            )

    def open_model(self, path: str) -> Any:
        import xgboost

        parameters: dict[str, Any] = {"nthread": self._threads}
        if self.device is not None:
            parameters["device"] = self.device
        booster = xgboost.Booster(parameters, model_file=path)
        objective = _learner(booster)["objective"]["name"]
        if self.method in ("predict_class", "predict_proba") and not objective.startswith(("binary:", "multi:")):
            raise without_classes(self.method, objective, "XGBoostModelHandler")
        if self.method == "predict_proba" and objective in ("multi:softmax", "binary:hinge", "binary:logitraw"):
            raise ModelLoadError(
                f"XGBoostModelHandler: a model of objective {objective} gives no probabilities; use method='margin'"
            )
        if self.best and booster.attr("best_iteration") is None:
            raise ModelLoadError(f"{self.path} was trained without early stopping, and knows no best iteration")
        return booster

    def features_of(self, model: Any) -> Features:
        return Features(model.num_features(), tuple(model.feature_names or ()))

    def rounds_of(self, model: Any) -> int:
        return int(model.num_boosted_rounds())

    def run_inference(self, batch: Any, model: Any) -> Any:  # type: ignore[override]
        data = self._data(self.features_of(model).of(batch, "XGBoostModelHandler"), model)
        if self.method in ("leaf", "contributions"):
            asked = {"pred_leaf": True} if self.method == "leaf" else {"pred_contribs": True}
            return self._predict_on_matrix(data, model, **asked)
        values = self._values(data, model)
        if self.method == "predict_class":
            return _classes(values, model)
        return probabilities_of(values) if self.method == "predict_proba" else values

    def _values(self, data: Any, model: Any) -> Any:
        margin = self.method == "margin"
        if _learner(model)["gradient_booster"]["name"] == "gblinear":  # has no prediction in place
            return self._predict_on_matrix(data, model, output_margin=margin)
        return model.inplace_predict(
            data,
            iteration_range=self._rounds(model),
            predict_type="margin" if margin else "value",
            missing=self.missing,
        )

    def _predict_on_matrix(self, data: Any, model: Any, **asked: bool) -> Any:
        import xgboost

        matrix = xgboost.DMatrix(
            data,
            missing=self.missing,
            nthread=self._threads,
            feature_names=model.feature_names,
            feature_types=model.feature_types if isinstance(data, np.ndarray) else None,
            enable_categorical=True,
        )
        return model.predict(matrix, iteration_range=self._rounds(model), **asked)

    def _rounds(self, model: Any) -> tuple[int, int]:
        if self.best:
            return 0, int(model.attr("best_iteration")) + 1
        return (0, 0) if self.iteration_range is None else self.iteration_range  # type: ignore[return-value]

    def _data(self, columns: pa.RecordBatch | NDArray[Any], model: Any) -> Any:
        """Return the features as XGBoost reads them fastest: one matrix of its own float32, unless there is text."""
        if isinstance(columns, np.ndarray):
            return columns
        categories = _categories(model)
        if not any(known is not None for known in categories):
            return number_matrix(columns, np.float32)
        table = pa.table(
            {
                name: pa.array(numbers(column, name)) if known is None else _coded(column, name, known)
                for name, column, known in zip(columns.schema.names, columns.columns, categories, strict=True)
            }
        )
        # XGBoost takes dictionaries of text from Arrow, and all other categories from pandas.
        texts = all(known is None or is_text(known.type) for known in categories)
        return table if texts else table.to_pandas()


def _learner(booster: Any) -> dict[str, Any]:
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def _classes(values: NDArray[Any], model: Any) -> NDArray[Any]:
    objective = _learner(model)["objective"]["name"]
    if objective == "multi:softmax":
        return values.astype(np.int64)  # they are classes
    if objective == "binary:logitraw":
        return (values > 0).astype(np.int64)
    if objective.startswith("binary:"):
        return (values > 0.5).astype(np.int64)  # several columns are several labels
    return classes_of(values)


def _categories(model: Any) -> list[pa.Array | None]:
    """Return the categories that the model keeps for each feature; None for numbers, and where it keeps none."""
    if "c" not in (model.feature_types or ()) or not hasattr(model, "get_categories"):
        return [None] * model.num_features()
    kept = model.get_categories(export_to_arrow=True)
    return [None] * model.num_features() if kept.empty() else [values for _, values in kept.to_arrow()]


def _coded(column: pa.Array, name: str, known: pa.Array) -> pa.DictionaryArray:
    """Return a column of categories as a dictionary; XGBoost finds the model's own codes for them.

    Raises:
        ValueError: they are of another kind than those that the model was fitted on.
    """
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if values.null_count == len(values):  # XGBoost refuses a dictionary without entries
        return pa.DictionaryArray.from_arrays(pa.nulls(len(values), pa.int32()), known)
    if is_text(values.type) != is_text(known.type):
        raise ValueError(
            f"feature {name!r} takes categories of the type {described(known.type)} and was given "
            f"{described(values.type)}"
        )
    return values.cast(pa.string() if is_text(known.type) else known.type).dictionary_encode()
