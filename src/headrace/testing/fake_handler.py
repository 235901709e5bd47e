"""A model handler without a model."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FakeModelHandler(ModelHandler[Any]):
    """Answers each row by a function, and fails where it is told to.

    >>> handler = FakeModelHandler(lambda row: len(row["text"]), fail_on=lambda row: row["text"] == "poison")
    >>> handler.run_inference([{"text": "a"}, {"text": "bcd"}], handler.load_model())
    [1, 3]
    >>> handler.run_inference([{"text": "poison"}], handler.load_model())
    Traceback (most recent call last):
    ValueError: told to fail on {'text': 'poison'}
    >>> handler.batch_sizes, handler.loads
    ([2, 1], 2)

    A row is a dict where the handler gets dicts, a table or named arrays, else one item of the array. One row that
    `fail_on` says yes to makes its whole batch raise, as a real model does.
    """

    def __init__(
        self,
        answer: Callable[[Any], Any],
        *,
        fail_on: Callable[[Any], bool] | None = None,
        latency_secs: float = 0.0,
        input_format: str = "auto",
        model_id: str = "fake",
    ) -> None:
        """Make a handler that answers each row with `answer(row)`, after `latency_secs` for each batch.

        `answer` may return an `hr.RowError` to fail that row alone.
        """
        self.input_format = input_format
        self._answer = answer
        self._fail_on = fail_on
        self._latency_secs = latency_secs
        self._model_id = model_id
        self._start_counting()

    @property
    def model_id(self) -> str:
        """What the `model_id` column says."""
        return self._model_id

    def load_model(self) -> Any:
        """Return the function that answers."""
        with self._lock:
            self.loads += 1
        return self._answer

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> list[Any]:
        """Answer row by row; `inference_args` are passed on to the function by name."""
        rows = _rows_of(batch)
        with self._lock:
            self.batch_sizes.append(len(rows))
        if self._latency_secs:
            time.sleep(self._latency_secs)
        for row in rows:
            if self._fail_on is not None and self._fail_on(row):
                raise ValueError(f"told to fail on {row!r}")
        return [model(row, **(inference_args or {})) for row in rows]

    def unload(self, model: Any) -> None:
        """Count that the model was given back."""
        with self._lock:
            self.unloads += 1

    def __getstate__(self) -> dict[str, Any]:
        counts = ("_lock", "batch_sizes", "loads", "unloads")
        return {name: value for name, value in vars(self).items() if name not in counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_counting()

    def _start_counting(self) -> None:
        # Calls in a worker process are counted there, and lost to this one.
        self._lock = threading.Lock()
        self.batch_sizes: list[int] = []
        """Rows of each batch so far, in this process."""
        self.loads = 0
        self.unloads = 0


def _rows_of(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        columns = [list(column) for column in batch.values()]
        return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    if hasattr(batch, "to_pylist"):
        return list(batch.to_pylist())
    if hasattr(batch, "to_dict"):
        return list(batch.to_dict("records"))
    return list(batch)
