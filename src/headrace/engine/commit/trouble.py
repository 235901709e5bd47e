"""What has gone wrong with an output, in whatever thread: the first error, which every later call raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from headrace.errors import HeadraceError


class Trouble:
    """The first error of an output. `changed` is notified when there is one."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self.error: HeadraceError | None = None

    def tell(self, error: HeadraceError) -> None:
        """Keep an error, unless there is one already."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error
