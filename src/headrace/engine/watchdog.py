"""The watchdog: names replicas that make no progress, and ends a run only for a thread that outlives its time limit."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import StageError
from headrace.metrics.statistics import Stall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.engine.stage_run import StageRun
    from headrace.engine.state import RunState

LOOK_SECS = 1.0
"""How often the watchdog looks, or more often where less time than that is to be noticed."""

_log = logging.getLogger("headrace.engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One replica as the watchdog sees it at a moment."""

    stage: str
    replica: int
    busy: bool
    """Whether it works; else it waits for others."""
    token: object
    """What differs from an earlier glance's as soon as there is any progress."""
    doing: Callable[[], str]
    """Says what it does, for people."""


class Stalls:
    """Finds replicas without progress from glances at them. Has no clock: the time comes in.

    One that works is stalled when its token stays the same. Where nobody works, and nothing changes, all are.
    """

    def __init__(self, warn_after_secs: float, *, everybody: bool = True) -> None:
        """`everybody` says whether nobody working means a stall too; a caller who pulls the rows may take his time."""
        self._after, self._everybody = warn_after_secs, everybody
        self._since: dict[tuple[str, int], tuple[object, float]] = {}
        self._all_since: tuple[object, float] = (None, 0.0)
        self._open: dict[tuple[str, int], int] = {}
        self.found: list[Stall] = []
        """All stalls so far, in the order in which they were noticed."""

    def look(self, glances: Sequence[Glance], now: float) -> list[Stall]:
        """Take a glance at all replicas; return the stalls that are new."""
        stalled: dict[tuple[str, int], tuple[Glance, float]] = {}
        for glance in glances:
            key, token = (glance.stage, glance.replica), (glance.busy, glance.token)
            if key not in self._since or self._since[key][0] != token:
                self._since[key] = (token, now)
            if glance.busy and now - self._since[key][1] >= self._after:
                stalled[key] = (glance, self._since[key][1])
        if (waiting := self._all_waiting(glances, now)) is not None:
            stalled[waiting[0].stage, waiting[0].replica] = waiting
        return self._noted(stalled, now)

    def _all_waiting(self, glances: Sequence[Glance], now: float) -> tuple[Glance, float] | None:
        tokens = tuple(glance.token for glance in glances)
        if tokens != self._all_since[0] or any(glance.busy for glance in glances) or not glances:
            self._all_since = (tokens, now)
            return None
        if not self._everybody or now - self._all_since[1] < self._after:
            return None
        words = "; ".join(f"{glance.stage} {glance.doing()}" for glance in glances)
        return Glance(stage="every stage", replica=0, busy=False, token=None, doing=lambda: words), self._all_since[1]

    def _noted(self, stalled: dict[tuple[str, int], tuple[Glance, float]], now: float) -> list[Stall]:
        for key in [key for key in self._open if key not in stalled]:
            index = self._open.pop(key)
            self.found[index] = replace(self.found[index], over=True)
        new = []
        for key, (glance, since) in stalled.items():
            stall = Stall(stage=key[0], replica=key[1], doing=glance.doing(), began_secs=since, secs=now - since)
            if key in self._open:
                self.found[self._open[key]] = stall
            else:
                self._open[key] = len(self.found)
                self.found.append(stall)
                new.append(stall)
        return new


class Watchdog:
    """Looks after the stages of a run, from a thread of its own, until the run ends or is stopped."""

    def __init__(
        self, stages: Sequence[StageRun], state: RunState, *, warn_after_secs: float | None, everybody: bool
    ) -> None:
        self._stages, self._state = stages, state
        self._stalls = None if warn_after_secs is None else Stalls(warn_after_secs, everybody=everybody)
        limits = [limit for stage in stages for limit in stage.time_limits()]
        limits += [] if warn_after_secs is None else [warn_after_secs]
        self._look_secs = min([LOOK_SECS, *(limit / 5 for limit in limits)])
        self._began = time.monotonic()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._watch, name="headrace-watchdog", daemon=True).start()

    def stalls(self) -> tuple[Stall, ...]:
        """Return the stalls so far."""
        return tuple(self._stalls.found) if self._stalls is not None else ()

    def _watch(self) -> None:
        from headrace.metrics.report import stall_text

        while not self._state.wait(self._look_secs) and not self._state.stopping.is_set():
            now = time.monotonic()
            if (error := _overdue(self._stages, now)) is not None:
                self._state.fail(error)
                return
            if self._stalls is not None:
                glances = [glance for stage in self._stages for glance in stage.glances()]
                for stall in self._stalls.look(glances, now - self._began):
                    _log.warning("stage %s", stall_text(stall))


def _overdue(stages: Iterable[StageRun], now: float) -> StageError | None:
    for stage in stages:
        for task in stage.tasks():
            overdue = getattr(task, "overdue", None)
            found: tuple[str, float] | None = None if overdue is None else overdue(now)
            if found is not None:
                step, limit_secs = found
                return StageError(
                    f"step {step!r}: a call takes longer than timeout_secs={limit_secs:g}, and a thread cannot be "
                    "killed; pass isolation='process', where a process that hangs is ended and only its row fails"
                )
    return None
