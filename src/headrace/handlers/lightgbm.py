"""LightGBM models: text files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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
from headrace.handlers.features import described, number_matrix
from headrace.records.types import is_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_ASKED = {"margin": "raw_score", "leaf": "pred_leaf", "contributions": "pred_contrib"}
"""What `predict` calls the other kinds of answers."""
_OF_CLASSES = ("binary", "multiclass", "multiclassova", "softmax")


class LightGBMModelHandler(BoostingModelHandler):
    """Runs a LightGBM model saved by `save_model` (.txt), of a Booster or of an estimator's `booster_`.

    The answer is that of `method`: "predict" is `Booster.predict`, (n,) or (n, classes); "predict_class" the number of
    the likeliest class and "predict_proba" a probability for every class, as `LGBMClassifier` gives them; "margin" the
    raw score; "leaf" a leaf for every tree; "contributions" the SHAP values of every feature and the bias.

    Features go by name, in whatever order they come; without `inputs=` the model's own are taken. Nulls are missing
    values. A feature of categories takes the values that it was fitted on; unknown ones are missing, as in LightGBM.
    `iteration_range` bounds the rounds of boosting: (0, 50) are the first 50. `predict_params` are further parameters
    of prediction, such as `pred_early_stop`; `threads` are this process's share of the cores if not given.

    Raises:
        ModelLoadError: the file is no LightGBM model, or has no classes where `method` asks for them.

    >>> LightGBMModelHandler("models/churn.txt", iteration_range=(0, 50)).model_id
    'churn.txt'
    """

    framework: ClassVar[str] = "lightgbm"
    files: ClassVar[str] = "text, as save_model writes it"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: Method = "predict",
        iteration_range: tuple[int, int] | None = None,
        predict_params: Mapping[str, Any] | None = None,
        threads: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(path, method=method, iteration_range=iteration_range, threads=threads, cache_dir=cache_dir)
        self.predict_params = dict(predict_params or {})

    def open_model(self, path: str) -> Any:
        import lightgbm

        _check_whole(path)
        booster = lightgbm.Booster(model_file=path)
        if self.method in ("predict_class", "predict_proba") and _objective(booster) not in _OF_CLASSES:
            raise without_classes(self.method, _objective(booster), "LightGBMModelHandler")
        return booster

    def features_of(self, model: Any) -> Features:
        names = tuple(model.feature_name())
        unnamed = names == tuple(f"Column_{i}" for i in range(len(names)))
        return Features(len(names), () if unnamed else names)

    def rounds_of(self, model: Any) -> int:
        return int(model.current_iteration())

    def run_inference(self, batch: Any, model: Any) -> Any:  # type: ignore[override]
        columns = self.features_of(model).of(batch, "LightGBMModelHandler")
        data = columns if isinstance(columns, np.ndarray) else _matrix(columns, model)
        values = model.predict(data, **self._asked())
        if self.method == "predict_class":
            return classes_of(values)
        return probabilities_of(values) if self.method == "predict_proba" else values

    def _asked(self) -> dict[str, Any]:
        asked = {**self.predict_params, "num_threads": self._threads}
        if self.method in _ASKED:
            asked[_ASKED[self.method]] = True
        if self.iteration_range is not None:
            start, end = self.iteration_range
            asked |= {"start_iteration": start, "num_iteration": end - start}
        return asked


def _check_whole(path: str) -> None:
    """Raise ModelLoadError for a file that breaks off among its trees: LightGBM would end the process over it."""
    with open(path, "rb") as file:
        lines = {line.strip() for line in file if line.startswith((b"tree", b"end of trees"))}
    if b"tree" in lines and b"end of trees" not in lines:
        raise ModelLoadError(f"{path} breaks off before the end of its trees; copy it anew, or save the model again")


def _objective(model: Any) -> str:
    return str(model.params.get("objective", "unknown")).partition(" ")[0]


def _matrix(columns: pa.RecordBatch, model: Any) -> NDArray[Any]:
    """Return the features as LightGBM reads them without a copy, float64, categories as the model's codes."""
    categories = model.pandas_categorical or []
    coded = {
        i: _codes(columns.column(i), columns.schema.names[i], known)
        for i, known in zip(_categorical(columns, model, len(categories)), categories, strict=True)
    }
    if coded:
        arrays = [coded.get(i, column) for i, column in enumerate(columns.columns)]
        columns = pa.RecordBatch.from_arrays(arrays, names=columns.schema.names)
    # A matrix of integers would be cast to float32, in which large ones are no longer themselves.
    narrow = all(type_ == pa.float32() for type_ in columns.schema.types)
    return number_matrix(columns, np.float32 if narrow else np.float64)


def _categorical(columns: pa.RecordBatch, model: Any, count: int) -> Sequence[int]:
    """Return which features are the `count` categorical ones, whose categories the model keeps in their order."""
    if not count:
        return ()
    found = model.params.get("categorical_feature")
    if isinstance(found, list) and len(found) == count:
        return sorted(found)
    # Ordered categories are no categorical features to LightGBM, though it keeps them; then the columns tell.
    types = columns.schema.types
    given = [i for i, type_ in enumerate(types) if is_text(type_) or pa.types.is_dictionary(type_)]
    if len(given) != count:
        raise PlanError(
            f"the model was fitted on {count} columns of categories and was given {len(given)} such columns "
            f"({', '.join(columns.schema.names[i] for i in given) or 'none'}), of text or of a dictionary type"
        )
    return given


def _codes(column: pa.Array, name: str, known: Sequence[Any]) -> pa.Array:
    """Return the numbers of a column's values among the known categories, null where they are none of them.

    Raises:
        ValueError: the column is of another kind than the categories.
    """
    import pyarrow.compute as pc

    categories = pa.array(known)
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_null(values.type) or pa.types.is_null(categories.type):
        return pa.nulls(len(values), pa.float64())
    if is_text(values.type) != is_text(categories.type):
        raise ValueError(
            f"feature {name!r} takes categories of the type {described(categories.type)} and was given "
            f"{described(column.type)}"
        )
    return pc.index_in(values, value_set=categories.cast(values.type)).cast(pa.float64())
