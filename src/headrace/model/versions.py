"""Which version of a model is worth a try: decided from what lies there and when it changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.handler import ModelHandler

UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".download", ".swp", ".lock", "~")
"""How names end that copying programs and editors give to what is not whole yet."""

WILD = "*?["


@dataclass(frozen=True, slots=True)
class Found:
    """A file or folder that may be a model, as it was when it was looked at."""

    path: str
    modified: float = 0.0
    """When it (or a file in it) was changed last, in seconds since 1970; 0 where the store does not say."""
    nbytes: int = 0
    state: str = ""
    """Differs from what it was before as soon as a size, a time or a version of any of its files does."""

    @property
    def rank(self) -> tuple[float, str]:
        """The larger, the newer."""
        return self.modified, self.path


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version of a model: its handler, and what its answers are called."""

    handler: ModelHandler[Any]
    name: str
    digest: str = ""
    """Of its content, in hex; "" where it has no files to speak of."""
    found: Found | None = None
    """None: it is not a file or folder that could be looked at again."""

    @property
    def model_id(self) -> str:
        """What the column `model_id` says: a name, and which content was meant by it.

        >>> Version(None, "churn.pkl", digest="0f5a3c81d2").model_id
        'churn.pkl@0f5a3c81'
        """
        return f"{self.name}@{self.digest[:8]}" if self.digest else self.name


class VersionChooser:
    """Knows what is in use, what was refused, and what was there at the last look; says what to try next.

    >>> chooser = VersionChooser(settle_secs=60)
    >>> half = Found("m/v2.pkl", modified=100.0, nbytes=5, state="5 bytes")
    >>> chooser.look([half], now=101.0)  # it may be growing
    ()
    >>> whole = Found("m/v2.pkl", modified=102.0, nbytes=9, state="9 bytes")
    >>> chooser.look([whole], now=103.0), chooser.look([whole], now=104.0) == (whole,)
    ((), True)
    >>> chooser.take(whole)
    >>> chooser.look([whole], now=105.0)
    ()
    """

    def __init__(self, *, settle_secs: float) -> None:
        """What was not touched for `settle_secs` is whole at the first look."""
        self._settle_secs = settle_secs
        self._seen: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._current: Found | None = None

    def look(self, found: Iterable[Found], *, now: float) -> tuple[Found, ...]:
        """Return the versions that are worth a try, the newest first.

        They are whole as far as can be seen, newer than the one in use, and not what was refused before.
        """
        there = list(found)
        before, self._seen = self._seen, {one.path: one.state for one in there}
        whole = [one for one in there if before.get(one.path) == one.state or self._is_old(one, now)]
        tried = [one for one in whole if self._is_newer(one) and self.is_worth_a_try(one)]
        return tuple(sorted(tried, key=lambda one: one.rank, reverse=True))

    def take(self, found: Found | None) -> None:
        """Say what is in use now; None: something that was not found."""
        self._current = found

    def refuse(self, found: Found) -> None:
        """Say that a version will not do, until its content changes."""
        self._refused[found.path] = found.state

    def is_worth_a_try(self, found: Found) -> bool:
        """Whether it was not refused as it is."""
        return self._refused.get(found.path) != found.state

    def _is_old(self, found: Found, now: float) -> bool:
        return 0 < found.modified <= now - self._settle_secs

    def _is_newer(self, found: Found) -> bool:
        current = self._current
        if current is None:
            return True
        if found.path == current.path:
            return found.state != current.state
        return found.rank > current.rank


def is_unfinished(path: str, pattern: str) -> bool:
    """Say whether a name is that of something hidden or not whole yet, and the pattern does not ask for such names.

    >>> is_unfinished("m/.v2.pkl", "m/*"), is_unfinished("m/v2.pkl.part", "m/*"), is_unfinished("m/v2.pkl", "m/*")
    (True, True, False)
    """
    wanted = [part for part in pattern.split("/") if part]
    parts = [part for part in path.split("/") if part]
    for part, asked in zip(reversed(parts), reversed(wanted), strict=False):
        if not any(letter in asked for letter in WILD):
            continue
        if part[:1] in (".", "_") and asked[:1] != part[:1]:
            return True
        if any(part.lower().endswith(end) and not asked.endswith(end) for end in UNFINISHED):
            return True
    return False


def name_of(path: str, pattern: str) -> str:
    """Name a match by the part of its path that differs from match to match, and what follows.

    >>> name_of("models/churn-7.pkl", "models/churn-*.pkl"), name_of("models/v7/model.onnx", "models/*/model.onnx")
    ('churn-7.pkl', 'v7/model.onnx')
    """
    wanted = pattern.rstrip("/").split("/")
    parts = path.rstrip("/").split("/")
    wild = next((number for number, part in enumerate(wanted) if any(letter in part for letter in WILD)), None)
    if wild is None or "**" in pattern:
        return parts[-1]
    return "/".join(parts[wild - len(wanted) :])
