"""What the threads of one run share: the first error, the wish to stop, and who is still at work."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.engine.channel import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

JOIN_SECS = 5.0
"""How long a stopped run waits for its threads; one stuck in a user's function is left behind as a daemon."""


class RunState:
    """Starts the run's threads and stops them all at the first error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive = 1  # the caller, until it has started all threads
        self._on_stop: list[Callable[[], None]] = []
        self._done = threading.Event()
        self.stopping = threading.Event()
        self.models_loaded = threading.Event()
        """Not set while a model is loading in this process, or is still to be loaded."""
        self.models_loaded.set()
        self._loading = 0
        self.error: BaseException | None = None

    def model_expected(self) -> None:
        """Say that a model will be loaded in this process."""
        with self._lock:
            self._loading += 1
            self.models_loaded.clear()

    def model_loaded(self) -> None:
        """Say that an expected model is there."""
        with self._lock:
            self._loading -= 1
            if not self._loading:
                self.models_loaded.set()

    def on_stop(self, action: Callable[[], None]) -> None:
        """Register what wakes or ends a part of the run when it is stopped; run at once if it is stopping already."""
        with self._lock:
            self._on_stop.append(action)
        if self.stopping.is_set():
            action()

    def spawn(self, work: Callable[[], None], name: str) -> None:
        """Run `work` in a thread; an exception in it stops the run."""
        with self._lock:
            self._alive += 1
        threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    def all_started(self) -> None:
        """Say that no more threads are to come but those that threads start; the run ends with the last of them."""
        self._one_less()

    def fail(self, error: BaseException) -> None:
        """Remember the first error and stop everything."""
        with self._lock:
            if self.error is None:
                self.error = error
        self.stop()

    def fail_unless_cancelled(self, error: BaseException) -> None:
        """As `fail`, but a thread that was merely told to stop has nothing to report."""
        if not isinstance(error, Cancelled):
            self.fail(error)

    def stop(self) -> None:
        """Wake all waiting threads with `Cancelled`."""
        with self._lock:
            if self.stopping.is_set():
                return
            self.stopping.set()
            actions = list(self._on_stop)
        for action in actions:
            action()

    def pause(self, secs: float) -> None:
        """Wait so many seconds.

        Raises:
            Cancelled: the run is being stopped.
        """
        if self.stopping.wait(secs):
            raise Cancelled

    def wait(self, timeout_secs: float | None = None) -> bool:
        """Wait until all threads have ended; say whether they have."""
        return self._done.wait(timeout_secs)

    def join(self) -> None:
        """Wait a bounded time for threads to end after a stop."""
        self._done.wait(JOIN_SECS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.fail_unless_cancelled(error)
        finally:
            self._one_less()

    def _one_less(self) -> None:
        with self._lock:
            self._alive -= 1
            last = self._alive == 0
        if last:
            self._done.set()
