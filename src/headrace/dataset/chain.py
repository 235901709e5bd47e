"""Functions of the user around a model: before it, behind it, and those that name or weigh its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.dataset.side_input import has_parameter
from headrace.errors import PlanError, RowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Chain:
    """Functions applied one after another to one value: of a whole row, or of one column.

    Each gets those of the side inputs that it has parameters for, by name.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], column: str | None, side_inputs: Sequence[str] = ()
    ) -> None:
        """`side_inputs` are the names of those that there are."""
        self.functions, self.column = tuple(functions), column
        self.taken = tuple(
            tuple(name for name in side_inputs if has_parameter(function, name)) for function in self.functions
        )

    def __call__(self, row: dict[str, Any], **side_inputs: Any) -> Any:
        """Return the value that the last function returns."""
        value: Any = row if self.column is None else row[self.column]
        for function, names in zip(self.functions, self.taken, strict=True):
            value = function(value, **{name: side_inputs[name] for name in names}) if names else function(value)
            if isinstance(value, RowError):
                raise value
        return value


def functions_of(what: str, given: Any) -> list[Callable[..., Any]]:
    """Return one function or several as a list, or raise PlanError for what is none."""
    if given is None:
        return []
    functions = [given] if callable(given) else list(given)
    for function in functions:
        if not callable(function):
            raise PlanError(f"{what} takes a function or a list of functions, not {type(function).__name__}")
    return functions
