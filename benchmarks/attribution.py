"""CPU seconds by what they are spent on: measured around functions, in the thread that runs them."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class _Inside(threading.local):
    """Which part this thread is in."""

    part: str | None = None


class Attribution:
    """Counts the CPU time (user and system) of the functions that it watches, by part.

    Of calls inside one another the outermost counts, whatever its part, so that no second is counted twice. What the
    measuring itself costs is counted too.

    >>> attribution = Attribution()
    >>> class Journal:
    ...     def commit(self): return sum(range(100_000))
    >>> attribution.watch("journal", Journal, "commit")
    >>> Journal().commit(), attribution.calls["journal"], attribution.secs["journal"] > 0
    (4999950000, 1, True)
    """

    def __init__(self, *, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._inside = _Inside()
        self._lock = threading.Lock()
        self.secs: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def watch(self, part: str, owner: Any, *names: str) -> None:
        """Watch functions of a module or class; what makes a context is watched as it is entered and left."""
        for name in names:
            found = vars(owner)[name]
            if isinstance(found, property):
                assert found.fget is not None
                setattr(owner, name, property(self.watched(part, found.fget)))
            else:
                setattr(owner, name, self.watched(part, found))

    def watch_context(self, part: str, owner: Any, *names: str) -> None:
        """Watch functions that return contexts: entering and leaving count, what happens between does not."""
        for name in names:
            setattr(owner, name, self._watched_context(part, vars(owner)[name]))

    def watched(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is watched."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            inside = self._inside
            if inside.part is not None:
                return function(*args, **kwargs)
            inside.part = part
            began = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = self._clock() - began
                inside.part = None
                with self._lock:
                    self.secs[part] += took
                    self.calls[part] += 1

        return watched

    def _watched_context(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        enter = self.watched(part, lambda context: context.__enter__())
        leave = self.watched(part, lambda context, *error: context.__exit__(*error))
        make = self.watched(part, function)

        class Watched:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self._context = make(*args, **kwargs)

            def __enter__(self) -> Any:
                return enter(self._context)

            def __exit__(self, *error: Any) -> Any:
                return leave(self._context, *error)

        return lambda *args, **kwargs: Watched(*args, **kwargs)
