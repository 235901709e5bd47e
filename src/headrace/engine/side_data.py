"""Where a side input is to be had, as steps get it: light, and sent to worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.model.shared import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.engine.spool import MappedTable


class SideData(Protocol):
    """Where a side input is to be had: light, and sent to worker processes with the step that uses it."""

    @property
    def key(self) -> str: ...

    def load(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """An object that cannot be sent: each process builds it of the rows, which it maps."""

    table: MappedTable
    build: Callable[[Any], Any]

    @property
    def key(self) -> str:
        """What tells it from all others of this machine."""
        return self.table.path

    def load(self) -> Any:
        """Build it."""
        return self.build(self.table.load())


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Stands for a side input of a run that has nothing to do."""

    key: str = "unneeded"

    def load(self) -> Any:
        """Return nothing: no row will be there for it."""
        return None


def opened(side_inputs: Sequence[tuple[str, SideData]]) -> dict[str, Any]:
    """Return the objects by argument; those of one process are the same for all that use them."""
    return {argument: shared(data.load, key=key_of(data)) for argument, data in side_inputs}


def key_of(data: SideData) -> tuple[str, str]:
    """Return the key by which the object is shared in a process."""
    return "side input", data.key
