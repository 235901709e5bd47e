"""scikit-learn models: pickle, joblib and skops files."""

from __future__ import annotations

import importlib
import io
import pickle
import re
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from headrace.errors import MissingDependencyError, ModelLoadError, PlanError, suggestion
from headrace.handlers.features import check_count, check_names, in_order
from headrace.handlers.packages import require
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy
from headrace.model.handler import ModelHandler
from headrace.model.inputs import column_array, is_numeric, matrix

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

Method: TypeAlias = Literal["auto", "predict", "predict_proba", "decision_function", "transform"]
METHODS = ("auto", "predict", "predict_proba", "decision_function", "transform")


PRELOAD_BYTES = 2**20
"""How far a pickle is looked through for the modules that it needs."""


@cache
def _thread_pools() -> Any:
    """Return what sets the threads of numeric libraries; made once, since it looks for them in the whole process."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class SklearnModelHandler(ModelHandler[Any]):
    """Runs a scikit-learn estimator or pipeline, or any object with the same methods.

    The kind of file is found from its content: pickle, joblib or skops. The first two run code when they are loaded,
    so they are taken from local paths only, unless `trust_remote_code=True`. The answer is that of `method`: "auto" is
    `predict`, or `transform` where there is no `predict`. With `proba_column`, one of the model's classes (or its
    position), the answer is the probability of that class.

    A model that was fitted on named columns is given them in its own order, and as a DataFrame where it may look for
    names; where the user names no inputs, its own are taken.

    >>> SklearnModelHandler("models/churn.pkl").model_id
    'churn.pkl'
    """

    input_format = "pyarrow"  # with names, so that columns given in another order are noticed

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: Method = "auto",
        proba_column: Any = None,
        trust_remote_code: bool = False,
        trusted_types: Sequence[str] = (),
        cache_dir: str | None = None,
    ) -> None:
        self.path = str(path)
        self.method: Method = method
        self.proba_column = proba_column
        self.trust_remote_code = trust_remote_code
        self.trusted_types = tuple(trusted_types)
        self.cache_dir = cache_dir

    @property
    def model_id(self) -> str:
        return file_name(self.path)

    def model_files(self) -> Sequence[str]:
        return (self.path,)

    def check(self) -> None:
        require("sklearn", package="scikit-learn", extra="sklearn", needed_by="SklearnModelHandler")
        if self.method not in METHODS:
            raise PlanError(
                f"SklearnModelHandler: method={self.method!r} is none of {', '.join(METHODS)};"
                f"{suggestion(str(self.method), METHODS)}"
            )
        if self.proba_column is not None and self.method not in ("auto", "predict_proba"):
            raise PlanError(f"SklearnModelHandler: proba_column= goes with method='predict_proba', not {self.method!r}")
        if not is_local(self.path) and not self.trust_remote_code and Path(self.path).suffix != ".skops":
            raise PlanError(
                f"SklearnModelHandler: loading {self.path} could run code of whoever wrote it; copy it to a "
                "local path, save it with skops, or pass trust_remote_code=True"
            )
        check_file(self.path, handler_name="SklearnModelHandler")

    def preload(self) -> None:
        """Import the modules that the pickle names; that is nearly all of the time that loading takes."""
        if is_local(self.path):
            with open(self.path, "rb") as file:
                head = file.read(PRELOAD_BYTES)
            for name in dict.fromkeys(re.findall(rb"sklearn(?:\.\w+)+", head)):
                importlib.import_module(name.decode())

    def load_model(self) -> Any:
        self.check()
        model = self._load(local_copy(self.path, self.cache_dir))
        method = self._method_of(model)
        if method is None:
            raise ModelLoadError(
                f"{self.path} holds a {type(model).__name__}, which has no method "
                f"{'predict' if self.method == 'auto' else self.method!r}; SklearnModelHandler runs scikit-learn models"
            )
        if self.proba_column is not None:
            _position_of(self.proba_column, model)
        # Columns are put in the model's own order by name before they become a matrix.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return model

    def check_model(self, model: Any, columns: Sequence[str]) -> None:
        """Compare names, or how many there are, with what the model was fitted on."""
        names = getattr(model, "feature_names_in_", None)
        wanted = getattr(model, "n_features_in_", None)
        if names is not None:
            check_names([str(name) for name in names], columns)
        elif len(columns) > 1 and _reads_texts(model):
            raise _one_text_column(columns)
        elif len(columns) > 1 and wanted is not None:  # a single one may hold vectors
            check_count(wanted, columns)

    def run_inference(self, batch: Any, model: Any) -> Any:  # type: ignore[override]
        answer = getattr(model, str(self._method_of(model)))
        features = _features(batch, model)
        if hasattr(model, "coef_"):
            # A product with a few coefficients gains nothing from more threads, and OpenBLAS's go on spinning behind
            # it, on the cores that read and write.
            with _thread_pools().limit(limits=1, user_api="blas"):
                answers = answer(features)
        else:
            answers = answer(features)
        if self.proba_column is None:
            return answers
        return answers[:, _position_of(self.proba_column, model)]

    def _method_of(self, model: Any) -> str | None:
        wanted: tuple[str, ...]
        if self.method != "auto":
            wanted = (self.method,)
        elif self.proba_column is not None:
            wanted = ("predict_proba",)
        else:
            wanted = ("predict", "transform")
        return next((name for name in wanted if hasattr(model, name)), None)

    def _load(self, path: Path) -> Any:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelLoadError(f"cannot read the model file {self.path}: {error}; check the path") from error
        kind = format_of(path)
        try:
            if kind == "a skops file":
                return self._load_skops(content)
            if not is_local(self.path) and not self.trust_remote_code:
                raise ModelLoadError(f"{self.path} is {kind}, not a skops file; pass trust_remote_code=True to load it")
            # joblib's own pickles keep their arrays outside the pickle stream, where pickle cannot find them.
            if "joblib" in kind or b"NumpyArrayWrapper" in content or _compressed(kind):
                return _load_joblib(content)
            if kind == "a pickle":
                return pickle.loads(content)
        except (ModelLoadError, MissingDependencyError, MemoryError):
            raise
        except ModuleNotFoundError as error:
            raise ModelLoadError(
                f"{self.path} was saved with the package {error.name!r}, which is not installed here; install it"
            ) from error
        except Exception as error:
            raise ModelLoadError(
                f"{self.path} looks like {kind}, but cannot be loaded: {type(error).__name__}: {error}; it may be "
                "damaged, or saved by another version of scikit-learn"
            ) from error
        raise ModelLoadError(
            f"{self.path} is not a scikit-learn model (pickle, joblib or skops): it seems to be {kind}"
        )

    def _load_skops(self, content: bytes) -> Any:
        require("skops", package="skops", extra="sklearn", needed_by="a .skops model")
        import skops.io

        unknown = sorted(set(skops.io.get_untrusted_types(data=content)) - set(self.trusted_types))
        if unknown:
            raise ModelLoadError(
                f"{self.path} contains types that skops does not trust: {', '.join(unknown)}; if you do, pass "
                f"trusted_types={unknown!r}"
            )
        return skops.io.loads(content, trusted=list(self.trusted_types))


def _load_joblib(content: bytes) -> Any:
    require("joblib", package="joblib", extra="sklearn", needed_by="a joblib model")
    import joblib

    return joblib.load(io.BytesIO(content))


def _compressed(kind: str) -> bool:
    return any(word in kind for word in ("gzip", "bzip2", "xz"))


def _features(batch: Any, model: Any) -> Any:
    """Return what the model takes: texts for one column of them, else a matrix or a DataFrame in the model's order."""
    if isinstance(batch, pa.Array):
        return _only_column(batch, model)
    if isinstance(batch, dict):
        raise PlanError("SklearnModelHandler takes inputs= as column names, or a mapping from feature names to columns")
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        batch = in_order(batch, [str(name) for name in names])
        if _looks_for_names(model) or not all(is_numeric(type_) for type_ in batch.schema.types):
            require("pandas", package="pandas", extra="pandas", needed_by="a model that looks for columns by name")
            return batch.to_pandas()
        return matrix(batch.columns)
    wanted = getattr(model, "n_features_in_", None)
    if batch.num_columns > 1 and _reads_texts(model):
        raise _one_text_column(batch.schema.names)
    if wanted is not None and wanted != batch.num_columns and not _is_vectors(batch):
        check_count(wanted, batch.schema.names)
    if batch.num_columns == 1 and (wanted is None or _is_vectors(batch)):
        return _one_column(batch.column(0))
    return matrix(batch.columns)


def _only_column(column: pa.Array, model: Any) -> NDArray[Any]:
    values, wanted = _one_column(column), getattr(model, "n_features_in_", None)
    if wanted not in (None, 1) and values.dtype.kind in "biuf" and values.shape[1] == 1:
        known = ", ".join(map(str, getattr(model, "feature_names_in_", ())))
        raise PlanError(
            f"the model takes {wanted} features{f' ({known})' if known else ''} and was given one column of numbers; "
            "name all that it takes with inputs="
        )
    return values


def _one_column(column: pa.Array) -> NDArray[Any]:
    values = column_array(column)
    return values.reshape(-1, 1) if values.ndim == 1 and values.dtype != object else values


def _reads_texts(model: Any) -> bool:
    """Say whether the model, or the first step of a pipeline, cuts texts into words (CountVectorizer and its kin)."""
    steps = getattr(model, "steps", None)
    return hasattr(steps[0][1] if steps else model, "build_analyzer")


def _one_text_column(given: Sequence[str]) -> PlanError:
    return PlanError(
        f"the model takes one column of texts and was given {len(given)} columns "
        f"({', '.join(given)}); name the one to take with inputs="
    )


def _is_vectors(batch: pa.RecordBatch) -> bool:
    return batch.num_columns == 1 and column_array(batch.column(0).slice(0, 1)).ndim > 1


def _looks_for_names(model: Any) -> bool:
    """Say whether a part of the model may pick columns by name, as a ColumnTransformer does."""
    steps = getattr(model, "steps", None)
    if steps is not None:
        return any(_looks_for_names(step) for _, step in steps)
    inner = getattr(model, "best_estimator_", None) or getattr(model, "estimator", None)
    known = type(model).__module__.startswith("sklearn.")
    return (
        not known
        or type(model).__name__ in ("ColumnTransformer", "FunctionTransformer")
        or (inner is not None and _looks_for_names(inner))
    )


def _position_of(proba_column: Any, model: Any) -> int:
    """Return the position of a class, given by its label or, failing that, as a position itself."""
    classes = list(getattr(model, "classes_", []))
    for position, label in enumerate(classes):
        if label == proba_column or str(label) == str(proba_column):
            return position
    if isinstance(proba_column, int) and 0 <= proba_column < len(classes):
        return proba_column
    listed = ", ".join(map(str, classes)) or "none"
    raise ModelLoadError(f"proba_column={proba_column!r} is none of the model's classes: {listed}")
