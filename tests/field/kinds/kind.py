"""One kind of handler, as the cases from the field meet it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from headrace.model.handler import ModelHandler

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A handler, and what it is given."""

    handler: ModelHandler[Any]
    inputs: Any = None
    columns: Callable[[int, int], Row] = lambda i, count: {}
    """What a row of number `i` and a count has beside these, for handlers that take no numbers."""


Made: TypeAlias = Callable[[Path], Model]
"""Makes a tiny model, with its files in a folder of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of handler with a model of its own framework, rows that it takes, and one that it refuses.

    Where the framework lets a model answer that oddly, further models of the same kind do; else the reason stands in
    their place. The answers of these follow from the numbers in their rows:

    | model         | columns        | answer a row                                                            |
    | ------------- | -------------- | ----------------------------------------------------------------------- |
    | `ragged`      | `id`, `wanted` | `wanted` times the number `id`, as an array                             |
    | `squeezed`    | `id`           | half of `id`; dimensions of one are squeezed, so that one row gives ()  |
    | `miscounting` | `id`, `times`  | `id`, `times` times: 1, or once 2 and once 0                            |
    """

    name: str
    needs: tuple[str, ...] = ()
    """Modules without which the kind is skipped."""
    make: Made
    row: Callable[[int], Row]
    """The columns of the row of that number, for which the model gives an answer of its own."""
    bad: Mapping[str, Any]
    """What makes a row one that the model refuses."""
    error: tuple[str, str]
    """What its dead letter says: the type of the error, and a pattern of its text."""
    tolerance: float = 0.0
    """By how much answers may differ between batches, relatively and absolutely: sums may be made in another order."""
    ragged: Made | str
    squeezed: Made | str
    miscounting: Made | str

    def rows(self, count: int, *, bad: tuple[int, ...] = ()) -> list[Row]:
        """Return numbered rows, some of them bad."""
        return [{"id": i, **self.row(i), **(self.bad if i in bad else {})} for i in range(count)]
