"""Collation: rows of different lengths or sizes become arrays that a model takes.

A collation is a callable from a batch (an array, or a dict of arrays, as `inputs=` says) to the batch that the model
gets: `PadSequences`, `FitPictures` (`pictures.py`), or a function of the user's. It may have `lengths(batch)`, one
number a row, by which like rows go together; and `groups(batch)`, the rows that the model is asked about at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from headrace.errors import AnswerError, PlanError, suggestion

if TYPE_CHECKING:
    from numpy.typing import NDArray

Side: TypeAlias = Literal["left", "right"]


def pad(
    arrays: Sequence[Any] | NDArray[Any],
    *,
    value: float = 0,
    side: Side = "right",
    multiple_of: int | None = None,
    length: int | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Pad n arrays of shapes (l, …) to one of shape (n, L, …); return it with a mask (n, L): 1 for what was there.

    L is the longest l, rounded up to `multiple_of`; or `length`, if that is given. Arrays may be tensors on the CPU or
    lists of numbers; their dtype is kept, where it can hold `value`.

    >>> padded, mask = pad([np.array([7, 8, 9]), np.array([5])], value=-1, side="left")
    >>> padded.tolist(), mask.tolist()
    ([[7, 8, 9], [-1, -1, 5]], [[1, 1, 1], [0, 0, 1]])

    Raises:
        ValueError: an array is longer than `length`, or null; or they differ in more than their lengths.
    """
    rows = arrays if isinstance(arrays, np.ndarray) and arrays.dtype != object and arrays.ndim > 1 else _rows(arrays)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    longest = int(lengths.max(initial=0))
    if length is not None and longest > length:
        raise ValueError(f"a row of length {longest} does not fit into length={length}; cut it before, or allow more")
    width = length if length is not None else -(-longest // (multiple_of or 1)) * (multiple_of or 1)
    places = np.arange(width) if side == "right" else np.arange(width)[::-1]
    there = places < lengths[:, np.newaxis]
    flat = rows.reshape(-1, *rows.shape[2:]) if isinstance(rows, np.ndarray) else np.concatenate(rows or [np.empty(0)])
    padded = np.full((len(rows), width, *flat.shape[1:]), value, dtype=_holding(value, flat.dtype))
    padded[there] = flat
    return padded, there.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class PadSequences:
    """Pads the sequences of a batch to the longest of them; pass it as `collate=`.

    A sequence is a row of shape (l, …), such as tokens (l,) or frames of sound (l, features). In a batch of named
    arrays all that hold sequences are padded, or those in `names`; all others stay as they are. `mask` names one more
    input for the model: 1 for what was there, 0 for padding, of shape (rows, longest) and int64; it needs named
    inputs. `value` fills, for all names or by name. L is rounded up to `multiple_of`, or is always `length`.

    >>> collate = PadSequences(mask="attention_mask", multiple_of=4)
    >>> collate({"input_ids": [[5, 6, 7], [8]], "year": np.array([1999, 2001])})["attention_mask"].tolist()
    [[1, 1, 1, 0], [1, 0, 0, 0]]

    Raises:
        PlanError: a setting makes no sense, or rows come without names where names are needed.
        ValueError: a row is longer than `length`, null, or of another kind than the others; it fails alone.
    """

    value: float | Mapping[str, float] = 0
    mask: str | None = None
    side: Side = "right"
    multiple_of: int | None = None
    length: int | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.side not in ("left", "right"):
            raise PlanError(f"PadSequences(side={self.side!r}): padding goes to the 'left' or to the 'right'")
        for key in ("multiple_of", "length"):
            number = getattr(self, key)
            if number is not None and not (isinstance(number, int) and number >= 1):
                raise PlanError(f"PadSequences({key}={number!r}): it is a whole number of elements, at least 1")

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its sequences padded, and with the mask, where that is named."""
        if not isinstance(batch, Mapping):
            if self.mask is not None:
                raise PlanError(
                    f"PadSequences(mask={self.mask!r}) needs names for what the model takes: pass inputs= as a mapping,"
                    " such as inputs={'input_ids': 'tokens'}"
                )
            return self._padded(only_array(batch), "")[0]
        names = chosen_names(batch, self.names, is_sequences)
        padded = {name: self._padded(batch[name], name) for name in names}
        result = {**batch, **{name: array for name, (array, _) in padded.items()}}
        if self.mask is not None and self.mask not in batch:
            result[self.mask] = _common_mask({name: mask for name, (_, mask) in padded.items()})
        return result

    def lengths(self, batch: Any) -> NDArray[np.int64]:
        """Return how long the longest sequence of each row is; a null is 0."""
        longest = np.zeros(rows_in(batch), dtype=np.int64)
        names = chosen_names(batch, self.names, is_sequences) if isinstance(batch, Mapping) else None
        for array in [batch] if names is None else [batch[name] for name in names]:
            longest = np.maximum(longest, [0 if row is None else len(row) for row in array])
        return longest

    def _padded(self, array: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
        value = self.value if not isinstance(self.value, Mapping) else self.value.get(name, 0)
        return pad(array, value=value, side=self.side, multiple_of=self.multiple_of, length=self.length)


def in_groups(collate: Any, batch: Any, answer: Callable[[Any], Any]) -> Any:
    """Return what `answer` says of a collated batch; or of one group of its rows after another, in the rows' order.

    >>> class ByParity:
    ...     def groups(self, batch): return [np.flatnonzero(batch % 2 == odd) for odd in (0, 1)]
    ...     def __call__(self, batch): return batch
    >>> [int(answer) for answer in in_groups(ByParity(), np.array([1, 2, 3, 4]), lambda group: group * 10)]
    [10, 20, 30, 40]

    Raises:
        AnswerError: a group was not answered once a row.
    """
    if collate is None:
        return answer(batch)
    groups: list[NDArray[np.int64]] = collate.groups(batch) if hasattr(collate, "groups") else []
    if len(groups) < 2:
        return answer(collate(batch))
    parts = [_as_lists(answer(collate(_taken(batch, rows))), len(rows)) for rows in groups]
    order = np.argsort(np.concatenate(groups), kind="stable")
    if not isinstance(parts[0], dict):
        return _ordered(parts, order)
    return {key: _ordered([part[key] for part in parts], order) for key in parts[0]}


def collation_of(given: Any, *, needed_by: str) -> Any:
    """Return the collation that `collate=` asks for: one, or a name and its settings, as a pipeline file has them.

    >>> collation_of({"pad_sequences": {"mask": "attention_mask"}}, needed_by="Net").mask
    'attention_mask'

    Raises:
        PlanError: it is none.
    """
    if isinstance(given, type):
        raise PlanError(f"{needed_by}: collate={given.__name__} is a class; pass one made of it: {given.__name__}(…)")
    if given is None or callable(given):
        return given
    from headrace.model.pictures import FitPictures

    known: dict[str, Any] = {"pad_sequences": PadSequences, "fit_pictures": FitPictures}
    named = {given: {}} if isinstance(given, str) else given
    if isinstance(named, Mapping) and len(named) == 1:
        ((name, settings),) = named.items()
        if name in known and isinstance(settings, Mapping):
            try:
                return known[name](**settings)
            except TypeError as error:
                raise PlanError(f"{needed_by}: collate={given!r}: {error}") from None
    raise PlanError(
        f"{needed_by}: collate={given!r} is none; pass hr.PadSequences(…), hr.FitPictures(…) or a function, or one of"
        f" {', '.join(known)} (with its settings: {{pad_sequences: {{value: 0}}}})"
    )


def only_array(batch: Any) -> Any:
    """Return a batch that is one array; rows as dicts are refused.

    Raises:
        PlanError: it is none.
    """
    if isinstance(batch, np.ndarray) or not any(isinstance(row, Mapping) for row in batch):
        return batch
    raise PlanError("collate= takes arrays, not rows: name the columns that the model takes with inputs=")


def rows_in(batch: Any) -> int:
    """Return the number of rows of an array, or of named arrays."""
    return len(next(iter(batch.values()))) if isinstance(batch, Mapping) else len(batch)


def chosen_names(batch: Mapping[str, Any], names: Sequence[str] | None, fits: Callable[[Any], bool]) -> list[str]:
    """Return the names to work on, of a batch of named arrays: those given, or those whose arrays fit.

    Raises:
        PlanError: one of them is not there.
    """
    found = [name for name, array in batch.items() if fits(array)] if names is None else list(names)
    for name in found:
        if name not in batch:
            raise PlanError(f"collate= names the input {name!r}, which is not there;{suggestion(name, batch)}")
    return found


def is_sequences(array: Any) -> bool:
    """Say whether an array's rows are sequences: arrays or lists, or at least one of them."""
    if isinstance(array, np.ndarray) and array.dtype != object:
        return array.ndim > 1
    return any(hasattr(row, "__len__") and not isinstance(row, (str, bytes, Mapping)) for row in array)


def _common_mask(masks: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    if not masks:
        raise ValueError("no input holds sequences, so that there is nothing to mask")
    (name, mask), *others = masks.items()
    for other, its in others:
        if not np.array_equal(mask, its):
            raise ValueError(
                f"the sequences of {name!r} and {other!r} differ in length, so that one mask cannot be that of both;"
                " say by names= which to pad, and pad the others by preprocess="
            )
    return mask


def _taken(batch: Any, rows: NDArray[np.int64]) -> Any:
    return {name: array[rows] for name, array in batch.items()} if isinstance(batch, Mapping) else batch[rows]


def _as_lists(answers: Any, rows: int) -> Any:
    """Return answers, an array or tensor or a dict of those, as lists of one answer a row."""
    if isinstance(answers, Mapping):
        return {key: _as_lists(part, rows) for key, part in answers.items()}
    if hasattr(answers, "detach"):
        answers = answers.detach().cpu()
    found = list(answers) if not hasattr(answers, "ndim") or answers.ndim else [answers]  # a bare number is squeezed
    if len(found) != rows:
        raise AnswerError(
            f"the model answered {len(found)} times for a group of {rows} rows; answers are paired by position: return"
            " exactly one a row, in the order of the batch"
        )
    return found


def _ordered(parts: Sequence[list[Any]], order: NDArray[np.int64]) -> list[Any]:
    together = [value for part in parts for value in part]
    return [together[i] for i in order.tolist()]


def _holding(value: float, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype, or a wider one that holds the value too."""
    with suppress(ValueError, OverflowError):
        if dtype.type(value) == value:
            return dtype
    return np.result_type(dtype, np.min_scalar_type(value))


def _rows(arrays: Sequence[Any] | NDArray[Any]) -> list[NDArray[Any]]:
    """Return rows as arrays that differ in their lengths only; what is empty takes the others' shape."""
    if any(row is None for row in arrays):
        raise ValueError("a row is null, and has no length; fill it, or filter it out")
    rows = [np.asarray(row) for row in arrays]
    if any(row.ndim == 0 for row in rows):
        raise ValueError("a row is a single number, and has no length; only sequences can be padded")
    filled = [row for row in rows if row.size]
    inner = {row.shape[1:] for row in filled}
    if len(inner) > 1:
        raise ValueError(f"rows differ in more than their lengths: by {' and '.join(map(str, sorted(inner)))}")
    empty = np.empty((0, *inner.pop()), dtype=np.result_type(*filled)) if filled else np.empty(0)
    return [row if row.size else empty for row in rows]
