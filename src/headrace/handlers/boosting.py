"""What the handlers of gradient boosting models share: files without code, features by name, kinds of answers."""

from __future__ import annotations

import importlib
import os
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import MissingDependencyError, ModelLoadError, PlanError, suggestion
from headrace.handlers.features import check_count, check_names, in_order, vectors
from headrace.handlers.packages import require
from headrace.model.cores import given_threads
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy, local_path
from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Method: TypeAlias = Literal["predict", "predict_class", "predict_proba", "margin", "leaf", "contributions"]
METHODS = ("predict", "predict_class", "predict_proba", "margin", "leaf", "contributions")


@dataclass(frozen=True, slots=True)
class Features:
    """What a model takes: so many features, in its own order."""

    count: int
    names: tuple[str, ...] = ()
    """Empty where it was fitted on a matrix, whose columns have no names."""

    def check(self, columns: Sequence[str]) -> None:
        """Raise PlanError if columns of these names are not what the model takes."""
        if self.names:
            check_names(self.names, columns)
        elif len(columns) != 1:  # a single one may hold vectors
            check_count(self.count, columns)

    def of(self, batch: Any, handler_name: str) -> pa.RecordBatch | NDArray[Any]:
        """Return the features' columns in the model's order; a matrix where one column holds them all as vectors."""
        if isinstance(batch, pa.Array):
            return vectors(batch, self.count)
        if isinstance(batch, pa.Table):
            batch = batch.combine_chunks().to_batches()[0]
        if not isinstance(batch, pa.RecordBatch):
            raise PlanError(
                f"{handler_name} takes columns: inputs= names them, or maps names of features to names of columns"
            )
        if self.names:
            return in_order(batch, self.names)
        if batch.num_columns == 1 and self.count != 1:
            return vectors(batch.column(0), self.count)
        check_count(self.count, batch.schema.names)
        return batch


class BoostingModelHandler(ModelHandler[Any]):
    """A gradient boosting model in a file of its framework's own, which holds no code.

    Subclasses say how a file is opened, what features a model takes, and how it answers them.
    """

    input_format = "pyarrow"  # with names, so that columns given in another order are noticed

    framework: ClassVar[str]
    """Module and extra of the framework."""
    files: ClassVar[str]
    """The files that it writes, as a message tells them."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: Method = "predict",
        iteration_range: tuple[int, int] | None = None,
        threads: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        self.path = str(path)
        self.method: Method = method
        self.iteration_range = None if iteration_range is None else tuple(iteration_range)
        self.threads = threads
        self.cache_dir = cache_dir

    @abstractmethod
    def open_model(self, path: str) -> Any:
        """Return the model in a file here, as its framework has it."""

    @abstractmethod
    def features_of(self, model: Any) -> Features:
        """Say what a model takes."""

    @abstractmethod
    def rounds_of(self, model: Any) -> int:
        """Say how many rounds of boosting a model has."""

    @property
    def model_id(self) -> str:
        return file_name(self.path)

    def model_files(self) -> Sequence[str]:
        return (self.path,)

    def check(self) -> None:
        name = type(self).__name__
        require(self.framework, package=self.framework, extra=self.framework, needed_by=name)
        if self.method not in METHODS:
            raise PlanError(
                f"{name}: method={self.method!r} is none of {', '.join(METHODS)};"
                f"{suggestion(str(self.method), METHODS)}"
            )
        _check_range(self.iteration_range, name)
        if self.threads is not None and self.threads < 1:
            raise PlanError(f"{name}: threads is {self.threads}; it is a number of threads, at least 1")
        check_file(self.path, handler_name=name)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Compare names with those that the model was fitted on; a model in a store is seen only when it is loaded."""
        if is_local(self.path):
            path = str(local_path(self.path))
            _features_in(type(self), path, os.stat(path).st_mtime_ns).check(columns)

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module(self.framework)

    def load_model(self) -> Any:
        self.check()
        model = self._opened(str(local_copy(self.path, self.cache_dir)))
        if self.iteration_range is not None and self.iteration_range[1] > (rounds := self.rounds_of(model)):
            raise ModelLoadError(  # some frameworks would answer with the rounds that there are, or with none
                f"{type(self).__name__}: iteration_range={self.iteration_range} goes beyond the {rounds:,} rounds of "
                f"{self.path}"
            )
        return model

    @property
    def _threads(self) -> int:
        return given_threads(self.threads)

    def _opened(self, path: str) -> Any:
        try:
            return self.open_model(path)
        except (ModelLoadError, MissingDependencyError, MemoryError):
            raise
        except Exception as error:
            raise ModelLoadError(self._refusal(path, error)) from error

    def _refusal(self, path: str, error: Exception) -> str:
        kind = format_of(path)
        text = f"{self.path} is not a model that {type(self).__name__} can load ({self.files}): it seems to be {kind}"
        if "pickle" in kind or "joblib" in kind:
            return (
                f"{text}, which could run code of whoever wrote it; save the model with its own save_model, or run a "
                "pickle that you trust with SklearnModelHandler"
            )
        first_line = str(error).partition("\n")[0]
        return f"{text}; {self.framework} says: {first_line}"


@lru_cache(maxsize=64)
def _features_in(handler_class: type[BoostingModelHandler], path: str, mtime_ns: int) -> Features:
    """Open a model for the names of its features; the time stands for its content."""
    handler = handler_class(path)
    return handler.features_of(handler._opened(path))


def _check_range(given: tuple[Any, ...] | None, handler_name: str) -> None:
    if given is None:
        return
    whole = len(given) == 2 and all(isinstance(end, int) and not isinstance(end, bool) for end in given)
    if not whole or not 0 <= given[0] < given[1]:
        raise PlanError(
            f"{handler_name}: iteration_range={given!r} must be two whole numbers, as in (0, 100) for the first 100 "
            "rounds of boosting"
        )


def classes_of(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of the likeliest class of each row, of probabilities (n,) of class 1 or (n, classes).

    >>> classes_of(np.array([0.2, 0.8])), classes_of(np.array([[0.2, 0.5, 0.3]]))
    (array([0, 1]), array([1]))
    """
    return np.asarray(values.argmax(axis=1) if values.ndim > 1 else values > 0.5, dtype=np.int64)


def probabilities_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities of class 1 (n,) as those of both classes (n, 2), and (n, classes) as they are.

    >>> probabilities_of(np.array([0.25]))
    array([[0.75, 0.25]])
    """
    return values if values.ndim > 1 else np.column_stack([1.0 - values, values])


def without_classes(method: str, objective: str, handler_name: str) -> ModelLoadError:
    """Return the error for a model that has no classes to answer with."""
    return ModelLoadError(
        f"{handler_name}: method={method!r} needs a model of classes, and this one's objective is {objective}; use "
        "method='predict'"
    )
