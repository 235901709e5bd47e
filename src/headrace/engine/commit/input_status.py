"""How far each input file is, from what the journal knows of its splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.metrics.quantities import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.engine.commit.entries import SplitRecord

Progress: TypeAlias = Literal["untouched", "begun", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputStatus:
    """Input that is read as one: a file, several small ones, or whatever a source without files has."""

    names: tuple[str, ...]
    state: Literal["done", "open", "waiting", "given up"]
    """"open" is begun, "waiting" not begun; "given up" is what changed and was to stay as it is."""
    failed: int = 0
    """Rows in the dead letters."""

    @property
    def label(self) -> str:
        """What a person calls it.

        >>> InputStatus(names=("a.csv", "b.csv"), state="done").label
        'a.csv and 1 more file'
        """
        more = len(self.names) - 1
        return self.names[0] + (f" and {count(more, 'more file')}" if more else "")


def input_status(
    splits: Iterable[SplitRecord], progress: Callable[[int], Progress], failed: Mapping[int, int]
) -> tuple[InputStatus, ...]:
    """Return the state of every piece of the input; the splits of a file that is cut count as one."""
    groups: dict[tuple[str, ...], list[SplitRecord]] = {}
    for split in splits:
        names = tuple(path for path, _ in split.files) or (split.label,)
        groups.setdefault(names, []).append(split)
    return tuple(
        InputStatus(
            names=names,
            state=_state([progress(s.number) for s in found if not s.closed]),
            failed=sum(failed.get(s.number, 0) for s in found),
        )
        for names, found in groups.items()
    )


def _state(found: list[Progress]) -> Literal["done", "open", "waiting", "given up"]:
    if not found:
        return "given up"
    if set(found) == {"done"}:
        return "done"
    return "waiting" if set(found) == {"untouched"} else "open"
