"""Which models are in memory: decided from sizes, leases and the order of use, without threads and without a clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING

from headrace.errors import ModelTooLargeError
from headrace.metrics.quantities import amount, percent
from headrace.metrics.statistics import ManagerStatistics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

UNLIMITED = 2**62


class Verdict(Enum):
    """What whoever asks for a model has to do."""

    LEASED = "leased"
    """Use it, then `release`."""
    LOAD = "load"
    """Load it (there is room), then say `loaded` or `failed`."""
    WAIT = "wait"
    """Ask again when a model has been loaded, was released or has left."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer of the manager."""

    verdict: Verdict
    leave: tuple[str, ...] = ()
    """Models that whoever is told so has to unload now, and then say `left`."""


@dataclass(slots=True, eq=False)
class _Model:
    """A model that takes memory: it is loaded or being loaded, or has not left yet."""

    name: str
    nbytes: int
    wanted: int
    """When it was wanted last, in the manager's own count."""
    loading: bool = True
    leases: int = 0
    leaving: bool = False
    """It gets no more leases but expected ones, and has to be unloaded when it has none."""
    gone: bool = False
    """Somebody unloads it."""
    fresh: bool = True
    """It has not been leased since it was loaded."""


class ModelManager:
    """Decides who is in memory on one device, within a budget in bytes.

    Not locked: the engine calls it under its own lock, and carries out what it says. The model that was wanted longest
    ago leaves first; one that is leased leaves only after its last lease. Who waits for room gets it before others.

    >>> manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    >>> manager.ask("a").verdict.value
    'load'
    >>> manager.loaded("a", lease=True)
    ()
    >>> manager.ask("b")  # "a" is at work: it leaves behind that
    Decision(verdict=<Verdict.WAIT: 'wait'>, leave=())
    >>> manager.release("a")
    ('a',)
    >>> manager.left("a")
    >>> manager.ask("b").verdict.value
    'load'
    """

    def __init__(
        self, budget_bytes: int | None, *, sizes: dict[str, int] | None = None, whole: str | None = None
    ) -> None:
        """`sizes` are declared: models count for no less. Others are learnt. Without a budget nobody has to leave.

        `whole` says in words what the budget is, where sizes count in more than one kind of memory.
        """
        self._whole = whole
        self._limited = budget_bytes is not None
        self._budget_bytes = UNLIMITED if budget_bytes is None else budget_bytes
        self._declared = dict(sizes or {})
        self._sizes = dict(self._declared)
        self._learnt: set[str] = set()
        self._present: dict[str, _Model] = {}
        self._expected: Counter[str] = Counter()
        """How many leases are about to be asked for, by name."""
        self._queue: list[str] = []
        """Who waits for room; those in front get it first."""
        self._count = count()
        self._hits = self._loads = self._swaps = self._waits = 0
        self._peak_bytes = 0

    def ask(self, name: str, *, expected: bool = False) -> Decision:
        """Ask for a lease of a model; with `expected`, for one that `expect` has told of.

        Raises:
            ModelTooLargeError: it is larger than the whole budget.
        """
        model = self._present.get(name)
        if model is not None:
            if model.loading or model.gone or (model.leaving and not expected):
                return self._wait()
            self._lease(model)
            self._hits += 1
            return Decision(Verdict.LEASED)
        if name not in self._queue:
            self._queue.append(name)
        if self.size_of(name) > self._budget_bytes:
            self._queue.remove(name)
            self.check(name)
        ahead = sum(self.size_of(one) for one in self._queue[: self._queue.index(name)])
        if self._fits(name, ahead):
            self._begin(name)
            return Decision(Verdict.LOAD)
        return self._wait(self._make_leave(self._victims(self._missing(name, ahead))))

    def expect(self, name: str) -> None:
        """Say that a lease will be asked for at once: until it is had (`met`), the model stays if it is there."""
        self._expected[name] += 1

    def met(self, name: str) -> tuple[str, ...]:
        """Say that an expected lease was had, or given up; return the model if it has to leave now."""
        self._expected[name] -= 1
        if not self._expected[name]:
            del self._expected[name]
        model = self._present.get(name)
        return () if model is None else self._gone([model])

    def prefetch(self, name: str, *, wanted: Collection[str] = ()) -> Decision:
        """Ask to have a model loaded before anybody needs it; nobody who is `wanted` leaves for it."""
        if name in self._present or name in self._expected or self._queue or self.size_of(name) > self._budget_bytes:
            return Decision(Verdict.WAIT)
        if self._fits(name, self._coming_bytes):
            self._begin(name)
            return Decision(Verdict.LOAD)
        missing = self._missing(name, self._coming_bytes)
        idle = [one for one in self._oldest_first() if self._idle(one) and not one.fresh and one.name not in wanted]
        if sum(one.nbytes for one in idle) < missing:
            return Decision(Verdict.WAIT)
        self._queue.append(name)
        return Decision(Verdict.WAIT, self._make_leave(_enough(idle, missing)))

    def check(self, name: str) -> None:
        """Raise if a model can never be loaded.

        Raises:
            ModelTooLargeError: it is larger than the whole budget; says both sizes.
        """
        nbytes = self._sizes.get(name, 0)
        if nbytes > self._budget_bytes:
            how = "takes" if name in self._learnt else "is said to take"
            size = amount(nbytes) if self._whole is None else percent(nbytes / self._budget_bytes) + " of it"
            raise ModelTooLargeError(
                f"model {name!r} {how} {size}, and the memory budget for all models is"
                f" {self._whole or amount(self._budget_bytes)}; pass a larger memory_budget=, or leave the model out"
            )

    def loaded(self, name: str, nbytes: int | None = None, *, lease: bool = False) -> tuple[str, ...]:
        """Say that a model is there, and its size where that was measured; return who has to leave for it.

        With `lease` whoever has loaded it has a lease too, so that nobody can put it out before it has answered.
        """
        model = self._present[name]
        model.loading = False
        if lease:
            self._lease(model)
        return self.measured(name, nbytes, exactly=True) if nbytes is not None else ()

    def failed(self, name: str) -> None:
        """Say that a model could not be loaded, or its load was ended."""
        del self._present[name]

    def release(self, name: str) -> tuple[str, ...]:
        """Give a lease back; return the model if it has to leave now."""
        model = self._present[name]
        model.leases -= 1
        return self._gone([model])

    def left(self, name: str) -> None:
        """Say that a model is unloaded."""
        del self._present[name]
        self._swaps += 1

    def want(self, names: Iterable[str]) -> None:
        """Say for which models rows have come: they leave after those for which none has."""
        for name in names:
            if (model := self._present.get(name)) is not None:
                model.wanted = next(self._count)

    def measured(self, name: str, nbytes: int, *, exactly: bool = False) -> tuple[str, ...]:
        """Learn how much a model takes; return who has to leave since the budget is exceeded, the model too if need be.

        Sizes grow with what models do; `exactly` lets them become smaller, as at the end of a load.
        """
        model = self._present[name]
        nbytes = max(nbytes, self._declared.get(name, 0))
        if not (exactly or nbytes > model.nbytes):
            return ()
        model.nbytes = nbytes
        self._sizes[name] = nbytes if exactly else max(nbytes, self._sizes.get(name, 0))
        self._learnt.add(name)
        self._note_peak()
        others = self._victims(self.used_bytes - self._leaving_bytes - self._budget_bytes, but=model)
        if model.loading:
            others = [one for one in others if self._idle(one)]
        gone = self._make_leave(others)
        if self.used_bytes - self._leaving_bytes <= self._budget_bytes:
            return gone
        if model.loading:
            # Those that are left are at work: it is loaded again when they have left. It may need much more by then.
            self._sizes[name] = max(nbytes, min(2 * nbytes, self._budget_bytes))
            return (*gone, name)
        return (*gone, *self._make_leave([model]))

    def is_ready(self, name: str) -> bool:
        """Whether a lease would be given at once."""
        model = self._present.get(name)
        return model is not None and not model.loading and not model.leaving

    def has_place(self, name: str) -> bool:
        """Whether nobody would have to leave for a model: it is there or on its way, or there is room for it."""
        model = self._present.get(name)
        if model is not None:
            return not model.leaving
        if name in self._expected or self.size_of(name) > self._budget_bytes:
            return True
        return self._fits(name, self._coming_bytes)

    def victims(self, name: str) -> tuple[str, ...]:
        """Return who would have to leave for a model, of those that can; nobody where it is there, or is too large."""
        if name in self._present or self.size_of(name) > self._budget_bytes:
            return ()
        return tuple(model.name for model in self._victims(self._missing(name, 0)))

    def size_of(self, name: str) -> int:
        """Return what a model takes, as far as that is known; else as much as the largest, or all that there is."""
        known = self._sizes.get(name)
        if known is not None or not self._limited:
            return known or 0
        return min(max(self._sizes.values(), default=self._budget_bytes), self._budget_bytes)

    def room_bytes(self, name: str, nbytes: int) -> int:
        """Return by how much a model that takes so much now may still grow while all others stay."""
        others = sum(model.nbytes for model in self._present.values() if model.name != name)
        return max(0, self._budget_bytes - others - nbytes)

    @property
    def used_bytes(self) -> int:
        """What is in memory, what is being loaded and what has not left yet."""
        return sum(model.nbytes for model in self._present.values())

    @property
    def present(self) -> tuple[str, ...]:
        """The models that take memory."""
        return tuple(self._present)

    def statistics(self) -> ManagerStatistics:
        """Return who is there and what happened so far."""
        return ManagerStatistics(
            budget_bytes=self._budget_bytes if self._limited else None,
            nbytes=self.used_bytes,
            peak_bytes=self._peak_bytes,
            copies=sum(not model.loading for model in self._present.values()),
            hits=self._hits,
            loads=self._loads,
            swaps=self._swaps,
            waits=self._waits,
        )

    @property
    def _leaving_bytes(self) -> int:
        return sum(model.nbytes for model in self._present.values() if model.leaving)

    @property
    def _coming_bytes(self) -> int:
        """What those take who wait for room, or are about to ask."""
        return sum(self.size_of(name) for name in {*self._queue, *self._expected} if name not in self._present)

    def _wait(self, leave: tuple[str, ...] = ()) -> Decision:
        self._waits += 1
        return Decision(Verdict.WAIT, leave)

    def _lease(self, model: _Model) -> None:
        model.leases += 1
        model.fresh = False
        model.wanted = next(self._count)

    def _begin(self, name: str) -> None:
        if name in self._queue:
            self._queue.remove(name)
        self._present[name] = _Model(name, self.size_of(name), next(self._count))
        self._loads += 1
        self._note_peak()

    def _note_peak(self) -> None:
        """Note what is in memory, where it is not guessed."""
        known = sum(model.nbytes for model in self._present.values() if model.name in self._sizes)
        self._peak_bytes = max(self._peak_bytes, known)

    def _fits(self, name: str, ahead: int) -> bool:
        return self.used_bytes + ahead + self.size_of(name) <= self._budget_bytes

    def _missing(self, name: str, ahead: int) -> int:
        """Return the bytes that have to become free beyond those that are about to."""
        return self.used_bytes - self._leaving_bytes + ahead + self.size_of(name) - self._budget_bytes

    def _oldest_first(self) -> list[_Model]:
        return sorted(self._present.values(), key=lambda model: model.wanted)

    def _victims(self, missing: int, *, but: _Model | None = None) -> list[_Model]:
        """Choose who leaves: idle ones first, then those at work; not those that have never been used."""
        there = [model for model in self._oldest_first() if not (model.loading or model.leaving) and model is not but]
        rank = sorted(there, key=lambda model: (model.fresh, not self._idle(model)))
        return _enough(rank, missing)

    def _make_leave(self, models: Iterable[_Model]) -> tuple[str, ...]:
        """Have models leave; return those that can at once."""
        leaving = list(models)
        for model in leaving:
            model.leaving = True
        return self._gone(leaving)

    def _gone(self, models: Iterable[_Model]) -> tuple[str, ...]:
        """Return those of some models that have to be unloaded now."""
        now = [m for m in models if m.leaving and not (m.gone or m.leases or self._expected[m.name])]
        for model in now:
            model.gone = True
        return tuple(model.name for model in now)

    def _idle(self, model: _Model) -> bool:
        return not (model.loading or model.leases or model.leaving or self._expected[model.name])


def _enough(models: Iterable[_Model], nbytes: int) -> list[_Model]:
    """Return the first of some models, as many as have so many bytes together."""
    chosen = []
    for model in models:
        if nbytes <= 0:
            break
        chosen.append(model)
        nbytes -= model.nbytes
    return chosen
