"""Retrying: which errors a step's calls are made again for, how often, and after what pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import HeadraceError, PlanError, RowError
from headrace.plan.numbers import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

ErrorKind: TypeAlias = type[BaseException] | str


@dataclass(frozen=True, slots=True)
class Retry:
    """Calls a step's function or model again when it fails, before the failure counts.

    A batch is called `attempts` times before it is halved, and a row alone `attempts` times before it fails. The pause
    doubles from `backoff_secs` up to `max_backoff_secs`, and is drawn between half of that and all of it, so that
    replicas do not come back together. `on` names what is worth another attempt: exceptions, or their names as text. By
    default it is every error but `RowError`, by which code says that the row itself is bad.

    >>> import headrace as hr
    >>> flaky = iter([ConnectionError("busy"), None])
    >>> def ask(row):
    ...     if error := next(flaky):
    ...         raise error
    ...     return {"id": row["id"], "answer": 42}
    >>> retry = hr.Retry(3, backoff_secs=0.01, on=ConnectionError)
    >>> hr.range(1).map(ask, retry=retry, isolation="thread").take(1)
    [{'id': 0, 'answer': 42}]
    """

    attempts: int = 3
    backoff_secs: float = 1.0
    max_backoff_secs: float = 60.0
    on: ErrorKind | Iterable[ErrorKind] = ()

    def __post_init__(self) -> None:
        kinds = (self.on,) if isinstance(self.on, (str, type)) else tuple(self.on)
        for kind in kinds:
            named = isinstance(kind, str) and all(part.isidentifier() for part in kind.split("."))
            if not named and not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise PlanError(f"Retry(on=…) takes exceptions or their names, such as ConnectionError, not {kind!r}")
        object.__setattr__(self, "on", kinds)
        whole_number("Retry(attempts=…)", self.attempts, of="calls, the first among them")
        number("Retry(backoff_secs=…)", self.backoff_secs)
        number("Retry(max_backoff_secs=…)", self.max_backoff_secs)
        if self.backoff_secs > self.max_backoff_secs:
            raise PlanError(
                f"Retry(backoff_secs={self.backoff_secs}, max_backoff_secs={self.max_backoff_secs}): the first is "
                "longer than the longest"
            )

    def again(self, error: BaseException, attempt: int) -> bool:
        """Say whether to call again after attempt number `attempt` (from 1) ended in `error`.

        >>> Retry(2).again(OSError(), 1), Retry(2).again(OSError(), 2), Retry(on="OSError").again(TimeoutError(), 1)
        (True, False, True)
        """
        return attempt < self.attempts and self._worthwhile(error)

    def delay_secs(self, attempt: int, luck: float) -> float:
        """Return the pause after attempt number `attempt` (from 1); `luck` is drawn from [0, 1).

        >>> [Retry(backoff_secs=1, max_backoff_secs=3).delay_secs(attempt, 0.5) for attempt in (1, 2, 3, 1000)]
        [0.75, 1.5, 2.25, 2.25]
        """
        doublings = min(attempt - 1, 64)  # beyond that a float would overflow one day
        return float(min(self.max_backoff_secs, self.backoff_secs * 2.0**doublings) * (1 + luck) / 2)

    def _worthwhile(self, error: BaseException) -> bool:
        assert isinstance(self.on, tuple)
        if not self.on:
            return not isinstance(error, (RowError, HeadraceError))
        names = _names_of(type(error))
        return any(kind in names if isinstance(kind, str) else isinstance(error, kind) for kind in self.on)


def _names_of(kind: type) -> set[str]:
    """Return the names by which an exception may be called: its own and its ancestors', with module and without.

    >>> sorted(_names_of(TimeoutError) - _names_of(Exception))
    ['OSError', 'TimeoutError', 'builtins.OSError', 'builtins.TimeoutError']
    """
    return {name for cls in kind.__mro__ for name in (cls.__qualname__, f"{cls.__module__}.{cls.__qualname__}")}
