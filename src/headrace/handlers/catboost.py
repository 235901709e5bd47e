"""CatBoost models: cbm and JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError
from headrace.handlers.boosting import BoostingModelHandler, Features, Method, without_classes
from headrace.handlers.features import number_matrix, numbers
from headrace.handlers.packages import require
from headrace.model.files import format_of
from headrace.records.types import is_text

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

_PREDICTION_TYPES = {"predict_class": "Class", "predict_proba": "Probability", "margin": "RawFormulaVal"}


class CatBoostModelHandler(BoostingModelHandler):
    """Runs a CatBoost model saved by `save_model` (.cbm, or .json).

    The answer is that of `method`: "predict" is that of the model's own class, a label for classifiers and a number
    for regressors and rankers; "predict_class" the label of the likeliest class; "predict_proba" a probability for
    every class; "margin" the raw value; "leaf" a leaf for every tree; "contributions" the SHAP values of every feature
    and the bias.

    Features go by name, in whatever order they come; without `inputs=` the model's own are taken. Null numbers are
    missing values. Categories are text or whole numbers; unknown ones are known to CatBoost as such, and a null among
    them fails its row, as CatBoost refuses it. Columns of text and of embeddings go to the features fitted on these.
    `iteration_range` bounds the trees: (0, 50) are the first 50. `task_type="GPU"` predicts on a GPU (numbers only);
    `threads` are this process's share of the cores if not given.

    Raises:
        ModelLoadError: the file is no CatBoost model, or has no classes where `method` asks for them.

    >>> CatBoostModelHandler("models/churn.cbm", method="predict_proba").model_id
    'churn.cbm'
    """

    framework: ClassVar[str] = "catboost"
    files: ClassVar[str] = ".cbm or .json, as save_model writes them"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: Method = "predict",
        iteration_range: tuple[int, int] | None = None,
        task_type: Literal["CPU", "GPU"] = "CPU",
        threads: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(path, method=method, iteration_range=iteration_range, threads=threads, cache_dir=cache_dir)
        self.task_type = task_type

    def check(self) -> None:
        super().check()
        if self.task_type not in ("CPU", "GPU"):
            raise PlanError(f"CatBoostModelHandler: task_type={self.task_type!r} is neither 'CPU' nor 'GPU'")
        if self.method == "contributions" and self.iteration_range is not None:
            raise PlanError("CatBoostModelHandler: contributions are those of all trees; leave iteration_range= out")

    def open_model(self, path: str) -> Any:
        import catboost

        kind = "json" if format_of(path) == "a JSON file" else "cbm"
        model = catboost.CatBoostClassifier().load_model(path, format=kind)
        if len(model.classes_):
            return model
        if self.method in ("predict_class", "predict_proba"):
            raise without_classes(
                self.method, model.get_all_params().get("loss_function", "unknown"), type(self).__name__
            )
        return catboost.CatBoostRegressor().load_model(path, format=kind)

    def features_of(self, model: Any) -> Features:
        names = tuple(model.feature_names_)
        unnamed = names == tuple(str(i) for i in range(len(names)))
        return Features(len(names), () if unnamed else names)

    def rounds_of(self, model: Any) -> int:
        return int(model.tree_count_)

    def run_inference(self, batch: Any, model: Any) -> Any:  # type: ignore[override]
        import catboost

        columns = self.features_of(model).of(batch, "CatBoostModelHandler")
        pool = catboost.Pool(
            _data(columns, model),
            cat_features=model.get_cat_feature_indices(),
            text_features=model.get_text_feature_indices(),
            embedding_features=model.get_embedding_feature_indices(),
            feature_names=list(model.feature_names_),
            thread_count=self._threads,
        )
        start, end = self.iteration_range or (0, 0)
        trees: dict[str, Any] = {"ntree_start": start, "ntree_end": end, "thread_count": self._threads}
        if self.method == "leaf":
            return model.calc_leaf_indexes(pool, **trees)
        if self.method == "contributions":
            return model.get_feature_importance(pool, type="ShapValues", thread_count=self._threads)
        asked = {} if self.method == "predict" else {"prediction_type": _PREDICTION_TYPES[self.method]}
        answers = model.predict(pool, **asked, **trees, task_type=self.task_type)
        return answers[:, 0] if answers.ndim == 2 and answers.shape[1] == 1 else answers  # of several classes


def _data(columns: pa.RecordBatch | NDArray[Any], model: Any) -> Any:
    """Return the features as CatBoost reads them without a copy, or as a frame where there are other than numbers."""
    if isinstance(columns, np.ndarray):
        return columns.astype(np.float32)
    categories = set(model.get_cat_feature_indices())
    others = {*model.get_text_feature_indices(), *model.get_embedding_feature_indices()}
    if not categories and not others:
        return number_matrix(columns, np.float32, order="F")
    require("pandas", package="pandas", extra="pandas", needed_by="a CatBoost model of categories, text or embeddings")
    named = enumerate(zip(columns.schema.names, columns.columns, strict=True))
    return pa.table(
        {
            name: _coded(column) if i in categories else column if i in others else pa.array(numbers(column, name))
            for i, (name, column) in named
        }
    ).to_pandas()


def _coded(column: pa.Array) -> pa.Array:
    """Return categories as a dictionary, so that CatBoost hashes each of them once a batch."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    is_category = is_text(column.type) or pa.types.is_integer(column.type)
    return column.dictionary_encode() if is_category else column
