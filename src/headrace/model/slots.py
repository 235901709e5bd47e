"""The inputs that a model declares, and which columns go into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError
from headrace.model.inputs import column_array, matrix
from headrace.model.uneven import why_uneven

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One input of a model: its name, and the arrays that it takes.

    >>> print(Slot(name="x", dtype=np.dtype("float32"), shape=(None, 3)))
    'x' float32 ['?', 3]
    """

    name: str
    dtype: np.dtype[Any]
    """Of objects where the model takes text."""
    shape: tuple[int | str | None, ...] | None
    """With the rows first; names and None stand for any size. None: any shape."""
    type_name: str = ""
    """What the framework calls the dtype."""

    def __str__(self) -> str:
        shape = "of any shape" if self.shape is None else [n if n is not None else "?" for n in self.shape]
        return f"{self.name!r} {self.type_name or self.dtype} {shape}"


def assign(batch: Any, slots: Sequence[Slot]) -> list[tuple[Slot, NDArray[Any]]]:
    """Say which columns go into which input: by name, or all of them into the only one.

    `batch` is what `input_format = "pyarrow"` gives, or a dict of arrays.

    >>> batch = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    >>> [(slot, array)] = assign(batch, [Slot(name="x", dtype=np.dtype("float32"), shape=(None, 2))])
    >>> array.tolist()
    [[1, 3], [2, 4]]

    Raises:
        PlanError: an input gets no column, or the only one another number of columns than it takes.
    """
    if isinstance(batch, (pa.Array, np.ndarray)):
        named: dict[str, Any] = {"": batch}
    elif isinstance(batch, dict):
        named = batch
    else:
        named = dict(zip(batch.schema.names, batch.columns, strict=True))
    if slots and all(slot.name in named for slot in slots):
        return [(slot, as_array(named[slot.name])) for slot in slots]
    if len(slots) != 1 or (isinstance(batch, dict) and len(batch) > 1):
        missing = [slot.name for slot in slots if slot.name not in named]
        example = missing[0] if missing else "input"
        raise PlanError(
            f"the model's inputs are {described(slots)}; nothing is given for {', '.join(missing)}. Name a column "
            f"for each: inputs={{{example!r}: 'your column', …}}"
        )
    (slot,) = slots
    if len(named) == 1:
        return [(slot, as_array(next(iter(named.values()))))]
    check_width(slots, list(named))
    return [(slot, matrix(list(named.values())))]


def check_width(slots: Sequence[Slot], columns: Sequence[str]) -> None:
    """Raise if several columns are to make the matrix of a model's only input, and it takes another number.

    Raises:
        PlanError: says both numbers. Nothing is said of one column, which may hold vectors, nor of several inputs.
    """
    if len(slots) != 1 or slots[0].name in columns or len(columns) < 2:
        return
    shape = slots[0].shape
    width = shape[-1] if shape is not None and len(shape) == 2 else None
    if isinstance(width, int) and width != len(columns):
        raise PlanError(
            f"the model's input is {slots[0]}, and was given {len(columns)} columns ({', '.join(columns)}); name "
            "those to take with inputs="
        )


def as_arrays(batch: Any) -> Any:
    """Return a batch as a collation takes it: an array, or a dict of arrays."""
    if isinstance(batch, pa.RecordBatch):
        batch = dict(zip(batch.schema.names, batch.columns, strict=True))
    return {name: as_array(part) for name, part in batch.items()} if isinstance(batch, dict) else as_array(batch)


def as_array(part: Any) -> NDArray[Any]:
    """Return one part of a batch as an array, a matrix where it has several columns."""
    if isinstance(part, np.ndarray):
        return part
    return matrix(part.columns) if isinstance(part, pa.RecordBatch) else column_array(part)


def fit(array: NDArray[Any], slot: Slot) -> NDArray[Any]:
    """Return an array in the dtype and rank of a model's input.

    Numbers are cast where their kind allows: float64 to float32, int64 to int32 within its range, integers to floats;
    never floats to integers. Where each row is one number and the model wants (n, 1), a dimension is added.

    >>> fit(np.array([1, 2]), Slot(name="x", dtype=np.dtype("float32"), shape=(None, 1)))
    array([[1.],
           [2.]], dtype=float32)

    Raises:
        ValueError: it does not fit; the rows to blame are found by halving the batch.
    """
    if array.dtype.kind == "O":
        _check_objects(array, slot)
    shape = slot.shape
    if shape and array.ndim + 1 == len(shape) and shape[-1] == 1:
        array = array[..., np.newaxis]
    fits = not shape or (
        len(shape) == array.ndim
        and all(not isinstance(n, int) or n == m for n, m in zip(shape[1:], array.shape[1:], strict=True))
    )
    if shape is not None and not fits:
        raise ValueError(f"input {slot} was given an array of shape {tuple(array.shape)}{_advice(array, shape)}")
    return np.ascontiguousarray(_cast(array, slot))


def fixed_rows(slots: Sequence[Slot]) -> int | None:
    """Return the number of rows of every batch, where a model was exported for one number only.

    >>> fixed_rows([Slot(name="x", dtype=np.dtype("float32"), shape=(8, 3))])
    8
    """
    sizes = {slot.shape[0] for slot in slots if slot.shape and isinstance(slot.shape[0], int)}
    return sizes.pop() if len(sizes) == 1 else None


def described(slots: Sequence[Slot]) -> str:
    """Name inputs with their types and shapes."""
    return ", ".join(str(slot) for slot in slots)


def _advice(array: NDArray[Any], shape: tuple[int | str | None, ...]) -> str:
    """Say what to do where a model of features gets too few or too many of them."""
    if len(shape) != 2 or not isinstance(shape[-1], int) or array.ndim > 2:
        return ""
    given = array.shape[1] if array.ndim == 2 else 1
    verb = "is" if given == 1 else "are"
    return f": it takes {shape[-1]} numbers a row, and there {verb} {given}; name the columns to take with inputs="


def _check_objects(array: NDArray[Any], slot: Slot) -> None:
    """Refuse objects where numbers are wanted, and nulls where texts are."""
    values = array.reshape(-1)
    if slot.dtype.kind == "O":
        if any(value is None for value in values):
            raise ValueError(f"input {slot} was given a null")
        return
    first = next((value for value in values if value is not None), None)
    what = why_uneven(list(array)) if isinstance(first, (np.ndarray, list)) else type(first).__name__
    raise ValueError(f"input {slot} was given {what}")


def _cast(array: NDArray[Any], slot: Slot) -> NDArray[Any]:
    dtype = slot.dtype
    if array.dtype == dtype and dtype.kind != "O":
        return array
    if dtype.kind == "O":
        return array.astype(str).astype(object)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if array.size and (int(array.min()) < bounds.min or int(array.max()) > bounds.max):
            raise ValueError(f"input {slot} was given numbers beyond {dtype}")
    elif not (np.can_cast(array.dtype, dtype, casting="same_kind") and dtype.kind != "b"):
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ValueError(f"input {slot} was given a null or NaN")
        raise ValueError(f"input {slot} was given {array.dtype}; cast the column first")
    return array.astype(dtype)
