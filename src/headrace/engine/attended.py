"""A step's function with what stands around each of its calls."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import RowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.model.attempts import Attempts

T = TypeVar("T")

_END = object()


class Attended:
    """A function over rows whose calls are made again where they fail; each attempt gets a row of its own to change."""

    def __init__(self, function: Callable[..., Any], attempts: Attempts) -> None:
        self._function, self._attempts = function, attempts

    def __call__(self, row: dict[str, Any]) -> Any:
        """Call the function; a `RowError` that it returns counts as raised."""
        return self._attempts.call(lambda: _raised(self._function(dict(row))))

    def children(self, row: dict[str, Any]) -> Iterator[Any]:
        """Yield what the function returns or yields; after a failure no child is handed out a second time."""
        handed = 0
        coming: Iterator[Any] | None = None

        def following() -> Any:
            nonlocal coming
            if coming is None:
                coming = islice(iter(_raised(self._function(dict(row)))), handed, None)
            try:
                return next(coming, _END)
            except Exception:
                coming = None
                raise

        while (child := self._attempts.call(following)) is not _END:
            handed += 1
            yield child


def _raised(result: T) -> T:
    if isinstance(result, RowError):
        raise result
    return result
