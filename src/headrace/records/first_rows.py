"""The first rows of a step: where all of them fail, so will the others, and going on is pointless."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from headrace.errors import TooManyFailuresError
from headrace.records.failure import told

HOPELESS_ROWS = 100
"""So many failed rows without one success ever are enough to know."""


@dataclass(slots=True)
class FirstRows:
    """What a step's failed rows failed with, for as long as none has succeeded. Not thread-safe.

    >>> first = FirstRows(enough=3)
    >>> for error in (ValueError("a"), KeyError("age"), ValueError("b")):
    ...     first.failed(error)
    >>> first.hopeless(succeeded=0), first.hopeless(succeeded=1)
    (True, False)
    >>> str(first.stop("map"))[:89]
    "step 'map': all of the first 3 rows failed (2 with ValueError, 1 with KeyError), so going"
    """

    enough: float = HOPELESS_ROWS
    _kinds: Counter[str] = field(default_factory=Counter)
    _last: str = ""

    def failed(self, error: BaseException) -> None:
        """Count a failed row."""
        self._kinds[type(error).__name__] += 1
        self._last = told(error)

    def withdraw(self, error: BaseException) -> None:
        """Take back what `failed` counted: the row will be asked again."""
        self._kinds[type(error).__name__] -= 1

    def hopeless(self, *, succeeded: int) -> bool:
        """Say whether enough rows have failed and none has `succeeded`."""
        return not succeeded and self._kinds.total() >= self.enough

    def stop(self, stage: str, *, succeeded: int = 0) -> TooManyFailuresError:
        """Return the error that ends the run."""
        kinds = ", ".join(f"{count:,} with {kind}" for kind, count in self._kinds.most_common(3))
        why = f" ({kinds})" if len(self._kinds) > 1 else ""
        count = self._kinds.total()
        rows = f"{count:,} of the first {count + succeeded:,} rows" if succeeded else f"all of the first {count:,} rows"
        return TooManyFailuresError(
            f"step {stage!r}: {rows} failed{why}, so going on is pointless; the "
            f"last one with {self._last}. Mend the step or its input and start again"
        )
