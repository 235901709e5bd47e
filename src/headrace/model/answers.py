"""From what a handler returned to columns, paired with the rows by position and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import AnswerError, suggestion
from headrace.model.handler import PredictionResult
from headrace.records.columns import to_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SHORT_FLOATS = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
"""Of JAX and TensorFlow; numpy and Arrow have none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A batch's answers as columns of as many rows, null where a row failed."""

    columns: dict[str, pa.Array]
    failures: dict[int, Exception] = field(default_factory=dict)
    """By position: what stood in the place of that row's answer."""
    model_ids: list[str | None] | None = None
    """For each row, where the handler said which model answered it."""
    shapes: dict[str | None, tuple[int, ...]] = field(default_factory=dict)
    """The shape of one row's answer, by key of a dict answer (None for the whole), where arrays told it."""

    def part(self, first: int, end: int) -> Answers:
        """Return those of the rows `[first, end)`."""
        return Answers(
            columns={name: column.slice(first, end - first) for name, column in self.columns.items()},
            failures={row - first: error for row, error in self.failures.items() if first <= row < end},
            model_ids=None if self.model_ids is None else self.model_ids[first:end],
            shapes=self.shapes,
        )

    @classmethod
    def none(cls, names: Iterable[str]) -> Answers:
        """Return the answers to no row."""
        return cls(columns={name: pa.nulls(0) for name in names})

    def spread(self, places: NDArray[np.int64], rows: int, error: Exception) -> Answers:
        """Return answers to `rows` rows: these are to the rows at `places`, and `error` stands for all others."""
        indices = np.full(rows, -1, dtype=np.int64)
        indices[places] = np.arange(len(places))
        taken = pa.array(indices, mask=indices < 0)
        failures = dict.fromkeys(np.flatnonzero(indices < 0).tolist(), error)
        failures.update((int(places[row]), failure) for row, failure in self.failures.items())
        ids = self.model_ids
        return Answers(
            columns={name: column.take(taken) for name, column in self.columns.items()},
            failures=dict(sorted(failures.items())),
            model_ids=None if ids is None else [None if i < 0 else ids[i] for i in indices.tolist()],
            shapes=self.shapes,
        )


def pair(
    answers: Any,
    rows: int,
    *,
    handler_name: str,
    output: str | Mapping[str, str] = "prediction",
    known_shapes: Mapping[str | None, tuple[int, ...]] = MappingProxyType({}),
    shared: bool = False,
) -> Answers:
    """Pair what a handler returned with its `rows` rows (at least 1).

    Lists, tuples and generators give one answer an item; numpy arrays, tensors, Arrow arrays and pandas objects one a
    row; a dict of those gives answers of several parts. Dict answers become a struct column, or a column for each key
    where `output` is a mapping. What a model squeezes for a batch of one is that row's answer: a bare value, or an
    array of the shape that `known_shapes` (from earlier batches) says one answer has. The columns are copies, unless
    they may be `shared` with the handler: they then hold until it is called again.

    >>> from headrace import errors
    >>> pair([0.5, errors.RowError("too dark")], 2, handler_name="Net").failures
    {1: RowError('too dark')}
    >>> pair(np.array([0.2, 0.8]), 1, handler_name="Net", known_shapes={None: (2,)}).columns["prediction"].to_pylist()
    [[0.2, 0.8]]
    >>> pair({"label": ["a", "b"]}, 2, handler_name="Net", output={"label": "topic"}).columns["topic"].to_pylist()
    ['a', 'b']

    Raises:
        AnswerError: their number differs from that of the rows, or they are of no use (a set, one text for many rows).
    """
    taken = _Taking(rows=rows, handler_name=handler_name, known_shapes=known_shapes, shared=shared)
    parts = _parts_of(answers)
    if parts is not None:
        named = {str(key): taken.values(part, key=str(key)) for key, part in parts.items()}
        columns = taken.named_columns(named, output)
    else:
        columns = taken.columns(taken.values(answers), output)
    return Answers(
        columns=columns,
        failures=dict(sorted(taken.failures.items())),
        model_ids=taken.model_ids,
        shapes=taken.shapes,
    )


@dataclass(slots=True)
class _Taking:
    """The work of one `pair`: the failures and model ids met so far."""

    rows: int
    handler_name: str
    known_shapes: Mapping[str | None, tuple[int, ...]]
    shared: bool
    failures: dict[int, Exception] = field(default_factory=dict)
    model_ids: list[str | None] | None = None
    shapes: dict[str | None, tuple[int, ...]] = field(default_factory=dict)

    def values(self, answers: Any, key: str | None = None) -> list[Any] | NDArray[Any] | pa.Array:
        """Return answers (or one part of them) as a sequence of exactly `rows` values."""
        if isinstance(answers, tuple) and answers and all(_is_array(item) for item in answers):
            raise AnswerError(self._several_arrays(len(answers), key))
        values = _sequence(answers, alone=self.rows == 1)
        if values is None:
            raise self._not_answered(answers, key)
        if self.rows == 1 and isinstance(values, np.ndarray) and values.shape == self.known_shapes.get(key):
            values = values[np.newaxis]  # squeezed
        if len(values) != self.rows:
            raise self._miscounted(answers, len(values), key)
        if isinstance(values, np.ndarray):
            self.shapes[key] = values.shape[1:]
            # A copy, since Arrow would share the memory, and a model may write its next answers into the same array.
            if not self.shared or values.dtype == object:
                values = list(values) if values.dtype == object else values.copy()
        return self._plain(values) if isinstance(values, list) else values

    def columns(self, values: Any, output: str | Mapping[str, str]) -> dict[str, pa.Array]:
        """Make columns of answers that came one a row."""
        dicts = isinstance(values, list) and _all_dicts(values)
        if isinstance(output, str):
            return {output: _column(values)}
        if isinstance(values, pa.Array) and pa.types.is_struct(values.type):
            return self.named_columns({f.name: values.field(i) for i, f in enumerate(values.type)}, output)
        if not dicts and any(v is not None for v in values):
            kind = type(next((v for v in values if v is not None), None)).__name__
            raise AnswerError(
                f"handler {self.handler_name} answers with {kind}, but output= maps the keys {', '.join(output)} of "
                'dict answers to columns; return dicts, or pass one column name, such as output="prediction"'
            )
        for key in output:
            for row, answer in enumerate(values):
                if answer is not None and key not in answer:
                    self.failures.setdefault(row, AnswerError(self._missing(key, answer)))
        return {
            column: _column(_plain_items([None if answer is None else answer.get(key) for answer in values]))
            for key, column in output.items()
        }

    def named_columns(self, parts: Mapping[str, Any], output: str | Mapping[str, str]) -> dict[str, pa.Array]:
        """Make columns of answers that came as a dict of arrays."""
        if not parts:
            raise AnswerError(self._without_parts())
        if isinstance(output, str):
            return {output: pa.StructArray.from_arrays([_column(part) for part in parts.values()], names=list(parts))}
        for key in output:
            if key not in parts:
                raise AnswerError(self._missing(key, parts))
        return {column: _column(parts[key]) for key, column in output.items()}

    def _plain(self, values: list[Any]) -> list[Any]:
        """Unwrap results and tensors, and take the failures out; touches no list of plain values."""
        kinds = {type(value) for value in values}
        if any(issubclass(kind, PredictionResult) for kind in kinds):
            self._note_model_ids(values)
            values = [v.inference if isinstance(v, PredictionResult) else v for v in values]
            kinds = {type(value) for value in values}
        if any(issubclass(kind, Exception) for kind in kinds):
            self.failures.update((i, v) for i, v in enumerate(values) if isinstance(v, Exception))
            values = [None if isinstance(v, Exception) else v for v in values]
        return _plain_items(values)

    def _note_model_ids(self, values: list[Any]) -> None:
        ids = [v.model_id if isinstance(v, PredictionResult) else None for v in values]
        if any(ids):
            self.model_ids = ids

    def _miscounted(self, answers: Any, count: int, key: str | None, *, times: str = "") -> AnswerError:
        part = "" if key is None else f" under key {key!r}"
        text = (
            f"handler {self.handler_name} answered {times or _times(count)}{part} for {_rows(self.rows)}; answers are "
            "paired by position: return exactly one a row, in the order of the batch (RowError in the place of a row "
            "that fails)"
        )
        shape = getattr(answers, "shape", None)
        if self.rows == 1 and shape:
            text += (
                f"; an array for one row must keep its first dimension, as in (1, …), and this one is {tuple(shape)}"
            )
        elif isinstance(answers, tuple):
            text += "; a tuple counts as one answer an item, for several arrays return a dict"
        error = AnswerError(text)
        error.count = count
        return error

    def _not_answered(self, answers: Any, key: str | None) -> AnswerError:
        if answers is None and key is None:
            return self._miscounted(answers, 0, None, times="nothing (None)")
        part = "" if key is None else f" under key {key!r}"
        why = "which has no order" if isinstance(answers, (set, frozenset)) else "which is not one answer a row"
        return AnswerError(
            f"handler {self.handler_name} answered a {type(answers).__name__}{part} for {_rows(self.rows)}, {why}; "
            "return a list or an array with exactly one answer a row, or a dict of them"
        )

    def _several_arrays(self, count: int, key: str | None) -> str:
        part = "" if key is None else f" under key {key!r}"
        return (
            f"handler {self.handler_name} answered a tuple of {count} arrays{part} for {_rows(self.rows)}, which may "
            "be several outputs or one array a row; return a dict for several outputs, a list for one array a row"
        )

    def _without_parts(self) -> str:
        return (
            f"handler {self.handler_name} answered a dict or table without any key or column for {_rows(self.rows)}; "
            "return an array with one answer a row under each key"
        )

    def _missing(self, key: str, answer: Mapping[str, Any]) -> str:
        known = [str(k) for k in answer]
        return (
            f"handler {self.handler_name} answered without key {key!r}, which output= asks for;"
            f"{suggestion(key, known)} Keys answered: {', '.join(known) or 'none'}"
        )


def _parts_of(answers: Any) -> dict[Any, Any] | None:
    """Return the parts of an answer that is a dict of arrays or a table, else None."""
    if isinstance(answers, (pa.RecordBatch, pa.Table)):
        return dict(zip(answers.schema.names, answers.columns, strict=True))
    if isinstance(answers, Mapping):
        return dict(answers)
    if hasattr(answers, "to_arrow"):  # polars
        return _parts_of(answers.to_arrow())
    if hasattr(answers, "columns") and hasattr(answers, "iloc"):  # a pandas DataFrame
        return {name: answers[name] for name in answers.columns}
    return None


def _sequence(answers: Any, *, alone: bool) -> list[Any] | NDArray[Any] | pa.Array | None:
    """Return answers as something that has a length; a bare value counts as one answer for a row that is `alone`."""
    if isinstance(answers, pa.ChunkedArray):
        return to_column(answers)
    if isinstance(answers, (pa.Array, list)):
        return answers
    if hasattr(answers, "iloc"):  # a pandas Series: numbers as they are, the rest as Arrow reads it
        numbers = getattr(answers.dtype, "kind", "O") in "biuf" and isinstance(answers.dtype, np.dtype)
        return answers.to_numpy() if numbers else to_column(pa.array(answers))
    if isinstance(answers, (np.ndarray, np.generic)) or _is_tensor_type(type(answers)):
        array = as_numpy(answers)
        return array if array.ndim else (array.reshape(1) if alone else None)
    if answers is None or isinstance(answers, (set, frozenset)):
        return None
    if isinstance(answers, Iterable) and not isinstance(answers, (str, bytes, bytearray, PredictionResult)):
        return list(answers)
    return [answers] if alone else None


def _is_array(value: Any) -> bool:
    """Say whether a value is an array or tensor of at least one dimension."""
    return (isinstance(value, np.ndarray) or _is_tensor_type(type(value))) and len(getattr(value, "shape", ())) > 0


def _is_tensor_type(kind: type) -> bool:
    """Say whether values are tensors (of torch, TensorFlow, JAX, …) or sparse matrices, rather than plain values."""
    if issubclass(kind, (np.ndarray, np.generic, pa.Array)):
        return False
    return any(hasattr(kind, name) for name in ("detach", "__array__", "__dlpack__", "tocsr"))


def as_numpy(value: Any) -> NDArray[Any]:
    """Return a tensor of any framework as an array on the host, floats that numpy lacks as float32."""
    array = value if isinstance(value, np.ndarray) else _on_host(value)
    return array.astype(np.float32) if array.dtype.name in _SHORT_FLOATS else array


def _on_host(value: Any) -> NDArray[Any]:
    if hasattr(value, "tocsr"):
        return np.asarray(value.toarray())
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        try:
            return np.asarray(value.numpy())
        except TypeError:  # bfloat16
            return np.asarray(value.float().numpy())
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return np.from_dlpack(value)


def _all_dicts(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, Mapping) for value in present)


def _struct(values: Sequence[Mapping[str, Any] | None]) -> pa.Array:
    """Make a struct column whose fields are columns of their own, so that they may hold arrays and tensors."""
    names = dict.fromkeys(name for value in values if value is not None for name in value)
    if not names:
        return to_column(list(values))
    fields = [_column(_plain_items([None if value is None else value.get(name) for value in values])) for name in names]
    mask = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(fields, names=[str(name) for name in names], mask=mask)


def _plain_items(values: list[Any]) -> list[Any]:
    if any(_is_tensor_type(kind) for kind in {type(value) for value in values}):
        return [as_numpy(v) if _is_tensor_type(type(v)) else v for v in values]
    return values


def _column(values: Any) -> pa.Array:
    return _struct(values) if isinstance(values, list) and _all_dicts(values) else to_column(values)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
