"""Any callable as a model."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FunctionModelHandler(ModelHandler["Callable[..., Any]"]):
    """Runs a function over batches, or with `row=True` over one row at a time.

    A class is instantiated once a host, when the model is loaded, and its instance is called. `inference_args` become
    keyword arguments. With `row=True` a row for which the function raises fails alone.

    >>> handler = FunctionModelHandler(lambda row: row["n"] * 2, row=True)
    >>> handler.run_inference([{"n": 1}, {"n": 2}], handler.load_model())
    [2, 4]
    """

    def __init__(self, fn: Callable[..., Any], *, row: bool = False, input_format: str = "auto") -> None:
        self.fn, self.row, self.input_format = fn, row, input_format

    def load_model(self) -> Callable[..., Any]:
        if not inspect.isclass(self.fn):
            return self.fn
        made: Any = self.fn()
        return made  # type: ignore[no-any-return]

    def run_inference(
        self, batch: Any, model: Callable[..., Any], inference_args: Mapping[str, Any] | None = None
    ) -> Any:
        args = inference_args or {}
        return [_answer(model, row, args) for row in _rows_of(batch)] if self.row else model(batch, **args)

    @property
    def model_id(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)


def _answer(model: Callable[..., Any], row: Any, args: Mapping[str, Any]) -> Any:
    try:
        return model(row, **args)
    except MemoryError:
        raise
    except Exception as error:
        return error  # stands in the place of the row's answer, and fails it


def _rows_of(batch: Any) -> Any:
    """Iterate over the rows of whatever a handler may be given."""
    if isinstance(batch, dict):
        parts = [_rows_of(part) for part in batch.values()]
        return (dict(zip(batch, values, strict=True)) for values in zip(*parts, strict=True))
    if hasattr(batch, "itertuples"):
        return batch.to_dict("records")
    return batch.to_pylist() if hasattr(batch, "to_pylist") else batch
