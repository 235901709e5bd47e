"""Where a run hears of newer versions of its model: a pattern that is looked at, or announcements."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.engine.looking import look_at, matches
from headrace.errors import ModelLoadError, PlanError
from headrace.masking import masked
from headrace.model.updates import ModelMetadata, WatchFilePattern
from headrace.model.versions import Found, VersionChooser, name_of
from headrace.records.failure import told

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

FIRST_LOOK_SECS = 0.5
"""How long what was changed a moment ago is watched before a run begins with it."""

_log = logging.getLogger("headrace.model")


@dataclass(frozen=True, slots=True)
class Offer:
    """A version that may take over."""

    path: str
    name: str
    found: Found | None = None
    """None: nothing is there."""

    def check(self) -> None:
        """Raise if what is there is not what was offered.

        Raises:
            ModelLoadError: says so.
        """
        if self.found is None:
            raise ModelLoadError(f"nothing is there: {self.path}")
        now = look_at(self.path)
        if now is None or now.state != self.found.state:
            raise ModelLoadError(f"{self.path} {'has gone' if now is None else 'is changing'} while it is loaded")


class Offers(Protocol):
    """Offers versions, and hears what became of them."""

    def first(self, pause: Callable[[float], None]) -> list[Offer]:
        """Return the versions to begin with, the best first; `pause` waits so many seconds."""
        ...

    def later(self, stopped: threading.Event) -> Iterator[Offer]:
        """Yield the versions that come until `stopped` is set. After each, `took` or `refused` is called."""
        ...

    def took(self, offer: Offer) -> None:
        """Hear that a version is in use."""
        ...

    def refused(self, offer: Offer) -> None:
        """Hear that a version will not do."""
        ...


class WatchedOffers:
    """The newest match of a pattern."""

    def __init__(self, watch: WatchFilePattern, *, clock: Callable[[], float] = time.time) -> None:
        self._watch, self._clock = watch, clock
        self._chooser = VersionChooser(settle_secs=watch.interval_secs)
        self._taken: Found | None = None
        self._away = False

    def first(self, pause: Callable[[float], None]) -> list[Offer]:
        found = self._matches()
        best = self._chooser.look(found, now=self._clock())
        newest = max((one.rank for one in found), default=None)
        if newest is not None and (not best or best[0].rank < newest):
            pause(min(FIRST_LOOK_SECS, self._watch.interval_secs))
            best = self._chooser.look(self._matches(), now=self._clock())
        return [self._offer(one) for one in best]

    def later(self, stopped: threading.Event) -> Iterator[Offer]:
        while not stopped.wait(self._watch.interval_secs):
            for found in self._chooser.look(self._matches(), now=self._clock()):
                yield self._offer(found)
                if self._taken is found:
                    break  # the others are older

    def took(self, offer: Offer) -> None:
        self._taken = offer.found
        self._chooser.take(offer.found)

    def refused(self, offer: Offer) -> None:
        if offer.found is not None:
            self._chooser.refuse(offer.found)

    def _offer(self, found: Found) -> Offer:
        return Offer(found.path, name_of(found.path, self._watch.pattern), found)

    def _matches(self) -> list[Found]:
        """Look; a store that cannot be reached has nothing new."""
        try:
            found = matches(self._watch.pattern)
        except Exception as error:
            if not self._away:
                _log.warning(
                    "cannot look for models at %s: %s; trying again", masked(self._watch.pattern), masked(told(error))
                )
            self._away = True
            return []
        self._away = False
        return found


class AnnouncedOffers:
    """Versions that somebody says are ready, one after another."""

    def __init__(self, updates: Iterable[ModelMetadata]) -> None:
        self._updates = updates
        self._refused = VersionChooser(settle_secs=0.0)

    def first(self, pause: Callable[[float], None]) -> list[Offer]:
        return []

    def later(self, stopped: threading.Event) -> Iterator[Offer]:
        for update in self._updates:
            if stopped.is_set():
                return
            if not isinstance(update, ModelMetadata):
                raise PlanError(
                    f"updates= gives {update!r}; it is to give headrace.ModelMetadata(model_id, model_name)"
                )
            found = look_at(update.model_id)
            if found is None or self._refused.is_worth_a_try(found):
                yield Offer(update.model_id, update.model_name or name_of(update.model_id, ""), found)

    def took(self, offer: Offer) -> None:
        pass

    def refused(self, offer: Offer) -> None:
        if offer.found is not None:
            self._refused.refuse(offer.found)


def offers_of(updates: WatchFilePattern | Iterable[ModelMetadata]) -> Offers:
    """Return what offers the versions that a step was told to look after."""
    return WatchedOffers(updates) if isinstance(updates, WatchFilePattern) else AnnouncedOffers(updates)
