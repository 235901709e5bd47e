"""Large things made once a process and shared by whoever asks for them by the same key."""

from __future__ import annotations

import logging
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from contextlib import AbstractContextManager

T = TypeVar("T")

_log = logging.getLogger("headrace.shared")
_NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStatistics:
    """What has been asked of one process's shared objects."""

    held: int = 0
    """Objects that a run keeps now."""
    made: int = 0
    found: int = 0
    """Times that an object was there already."""


class _Slot:
    """The place of one object; its lock is held while the object is being made."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._strong: Any = _NOTHING
        self._weak: Callable[[], Any] | None = None
        self._made_in_run = False

    def get(self) -> Any:
        if self._strong is not _NOTHING:
            return self._strong
        there = None if self._weak is None else self._weak()
        return _NOTHING if there is None else there

    def put(self, obj: Any, *, in_run: bool) -> None:
        self._made_in_run = in_run
        try:
            self._weak = weakref.ref(obj)
        except TypeError:  # numbers, text, lists and dicts cannot be held weakly
            self._weak = None

    def hold(self, obj: Any) -> None:
        self._strong = obj

    @property
    def held(self) -> bool:
        return self._strong is not _NOTHING

    def let_go(self) -> Any:
        """Hold the object no more; return it where it is to be closed."""
        obj, self._strong = self._strong, _NOTHING
        if not self._made_in_run:
            return _NOTHING
        self._weak = None
        return obj


class SharedObjects:
    """The shared objects of one process. Thread-safe; others are not kept waiting while an object is made.

    >>> objects = SharedObjects()
    >>> with objects.run():
    ...     first, second = objects.get(list, key="words"), objects.get(list, key="words")
    >>> first is second
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}
        self._runs = self._made = self._found = 0

    def get(self, factory: Callable[[], T], *, key: Hashable) -> T:
        """Return the object of this key, making it where there is none; see `shared`."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            obj = slot.get()
            made = obj is _NOTHING
            if made:
                obj = factory()
            with self._lock:
                self._made += made
                self._found += not made
                if made:
                    slot.put(obj, in_run=self._runs > 0)
                if self._runs:
                    self._slots[key] = slot  # a run that ended meanwhile has let it go
                    slot.hold(obj)
        found: T = obj
        return found

    @contextmanager
    def run(self) -> Iterator[None]:
        """Keep what is asked for until the block ends; of several at a time, until the last one ends."""
        with self._lock:
            self._runs += 1
        try:
            yield
        finally:
            self._end()

    def statistics(self) -> SharedStatistics:
        """Return a snapshot."""
        with self._lock:
            held = sum(slot.held for slot in self._slots.values())
            return SharedStatistics(held=held, made=self._made, found=self._found)

    def _end(self) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs:
                return
            ended = [(key, slot.let_go()) for key, slot in self._slots.items()]
            self._slots = {key: slot for key, slot in self._slots.items() if slot.get() is not _NOTHING}
        for key, obj in reversed(ended):  # what was made of others goes before them
            if obj is not _NOTHING:
                _close(obj, key)


def _close(obj: Any, key: Hashable) -> None:
    close = getattr(obj, "close", None)
    if isinstance(obj, type) or not callable(close):
        return
    try:
        close()
    except Exception:  # the rows are written by now, and others are to be closed too
        _log.warning("the shared object %r could not be closed", key, exc_info=True)


_objects = SharedObjects()


def shared(factory: Callable[[], T], *, key: Hashable) -> T:
    """Return the one object of this key in this process, making it with `factory()` where there is none yet.

    For what is large or slow to make, inside functions and handlers: all steps and replicas that ask with the same key
    get the same object, which threads use at the same time; each worker process makes its own. While a run goes on it
    is kept; at the end of the run its `close()` is called if it has one. Outside of a run it stays as long as somebody
    holds it, and is made again each time where it cannot be held weakly (lists, dicts). For what all processes of a
    machine should share see `Dataset.broadcast`.

    >>> import headrace as hr
    >>> def long_words():
    ...     print("made")
    ...     return frozenset(["accelerator", "mill"])
    >>> def known(row):
    ...     return {"known": row["word"] in hr.shared(long_words, key="long words")}
    >>> hr.from_items([{"word": "mill"}, {"word": "m"}]).map(known).take(2)
    made
    [{'known': True}, {'known': False}]

    Raises:
        PlanError: the key cannot be a key of a dict.
    """
    try:
        hash(key)
    except TypeError as error:
        raise PlanError(f"shared() was given the key {key!r}, and {error}; text will do") from error
    return _objects.get(factory, key=key)


def running() -> AbstractContextManager[None]:
    """Return the context in which this process's shared objects are kept, to be entered by whoever runs something."""
    return _objects.run()
