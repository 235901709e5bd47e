"""Batches in a few sizes only, for models that are compiled anew for each size they meet (XLA: JAX, Keras on JAX)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.errors import AnswerError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PadTo: TypeAlias = int | Sequence[int] | str | None
"""The sizes that batches are padded to: "powers of two", one size or several of the user's, or None: as they come."""

POWERS = "powers of two"

WHOLE_ROWS = 64
"""Batches up to this size are padded rather than cut: another call would cost more than rows."""


def check_pad_to(pad_to: PadTo, *, handler_name: str) -> None:
    """Raise PlanError where `pad_to` is no size, or none of the other things it may be."""
    sizes = pad_to if isinstance(pad_to, Sequence) and not isinstance(pad_to, str) else [pad_to]
    sound = pad_to is None or pad_to == POWERS or (sizes and all(type(n) is int and n > 0 for n in sizes))
    if not sound:
        raise PlanError(
            f"{handler_name}: pad_to={pad_to!r}; it may be {POWERS!r}, a number of rows, several of them, or None"
        )


def cuts(rows: int, pad_to: PadTo = POWERS) -> list[tuple[int, int]]:
    """Cut a batch into calls, each with its rows and the size that it is padded to.

    Powers of two: at most two calls, so that at most a quarter of the work is padding (from 65 rows on).

    >>> cuts(60), cuts(200), cuts(300)
    ([(60, 64)], [(200, 256)], [(256, 256), (44, 64)])
    >>> cuts(70, pad_to=(8, 32))
    [(32, 32), (32, 32), (6, 8)]
    >>> cuts(70, pad_to=None)
    [(70, 70)]
    """
    if pad_to is None:
        return [(rows, rows)]
    if isinstance(pad_to, str):
        above = 1 << (rows - 1).bit_length()
        if rows <= WHOLE_ROWS or 4 * rows >= 3 * above:
            return [(rows, above)]
        rest = rows - above // 2
        return [(above // 2, above // 2), (rest, 1 << (rest - 1).bit_length())]
    sizes = [pad_to] if isinstance(pad_to, int) else sorted(pad_to)
    whole, rest = divmod(rows, sizes[-1])
    calls = [(sizes[-1], sizes[-1])] * whole
    return [*calls, (rest, next(size for size in sizes if size >= rest))] if rest else calls


def run_in_buckets(run: Callable[[Any], Any], batch: Any, pad_to: PadTo = POWERS) -> Any:
    """Run a function over a batch (an array, or a mapping of arrays) in calls of a few sizes; join what it answers.

    Rows are filled up with copies of the last one, and what is answered for those is cut off. The function answers one
    value a row: an array, a list, or a dict of them.

    >>> sizes = []
    >>> def double(batch):
    ...     sizes.append(len(batch))
    ...     return batch * 2
    >>> run_in_buckets(double, np.arange(5)), sizes
    (array([0, 2, 4, 6, 8]), [8])

    Raises:
        AnswerError: the function answers another number of rows than it was given, padding included.
    """
    if pad_to is None:
        return run(batch)
    parts, first = [], 0
    for rows, size in cuts(_rows(batch), pad_to):
        answers = run(_filled(batch, first, rows, size))
        parts.append(answers if rows == size else _without_padding(answers, rows, size))
        first += rows
    return parts[0] if len(parts) == 1 else _joined(parts)


def _rows(batch: Any) -> int:
    return _rows(next(iter(batch.values()))) if isinstance(batch, Mapping) else len(batch)


def _filled(batch: Any, first: int, rows: int, size: int) -> Any:
    if isinstance(batch, Mapping):
        return {name: _filled(part, first, rows, size) for name, part in batch.items()}
    array: NDArray[Any] = batch[first : first + rows]
    return array if rows == size else np.concatenate([array, np.repeat(array[-1:], size - rows, axis=0)])


def _without_padding(answers: Any, rows: int, size: int) -> Any:
    if isinstance(answers, Mapping):
        return {name: _without_padding(part, rows, size) for name, part in answers.items()}
    count = len(answers) if getattr(answers, "shape", None) != () else 1
    if count != size:
        error = AnswerError(
            f"the model answered {count} times for a batch of {rows} rows that was padded to {size}; answers are "
            "paired by position: exactly one a row is needed (pad_to=None leaves batches as they come)"
        )
        error.count = rows + count - size
        raise error
    return answers[:rows]


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [answer for part in parts for answer in part]
