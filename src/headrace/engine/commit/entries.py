"""What the journal says: splits that were read, parts and dead letters that are committed, and their sums."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.retrying import Answered


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """What a run knew of a split, so that a later run can see whether it has changed.

    >>> SplitRecord(0, "a.csv", "v1", packed=pack([("a.csv", "3 1700")])).files
    [('a.csv', '3 1700')]
    """

    number: int
    label: str
    version: str
    fingerprint: str | None = None
    source: str = ""
    """Name of the step that reads it."""
    packed: bytes | None = None
    closed: bool = False
    """Its files are not what they were: what was finished of it stays, the rest is given up."""

    @property
    def files(self) -> list[tuple[str, str]]:
        """Path and stamp of each file; [] where the source has none."""
        return [(path, stamp) for path, stamp in json.loads(zlib.decompress(self.packed))] if self.packed else []


def pack(files: Iterable[tuple[str, str]]) -> bytes | None:
    """Return paths and stamps in few bytes, since there may be a million; None for none."""
    listed = list(files)
    return zlib.compress(json.dumps(listed).encode(), 1) if listed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """A committed part."""

    number: int
    receipt: str
    rows: int
    nbytes: int
    schema: pa.Schema
    published: bool = False
    rewriting: bool = False
    """It is being replaced under a wider schema, so that its size is not known for sure."""
    answered: tuple[Answered, ...] = ()
    """Where the rows of a retry belong; not read back with the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersRecord:
    """A committed file of dead letters."""

    number: int
    receipt: str
    rows: int
    published: bool = False
    solved: int = 0
    """Letters in the file whose rows have been run again."""
    dropped: bool = False
    """The file is to be removed."""
    failed: tuple[FailedRow, ...] = ()
    """One for each letter, in the order of the file, and those whose letters are elsewhere; not read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What is committed."""

    rows: int = 0
    with_error: int = 0
    parts: int = 0
    nbytes: int = 0
    dead_letters: int = 0
    letters: int = 0
    """Files of dead letters that have been begun, those included that are gone again."""

    def plus(self, parts: Sequence[PartRecord], letters: Sequence[LettersRecord], *, with_error: int) -> Totals:
        """Return the totals after a commit."""
        return Totals(
            rows=self.rows + sum(part.rows for part in parts),
            with_error=self.with_error + with_error,
            parts=self.parts + len(parts),
            nbytes=self.nbytes + sum(part.nbytes for part in parts),
            dead_letters=self.dead_letters + sum(letter.rows for letter in letters),
            letters=self.letters + sum(bool(letter.receipt) for letter in letters),
        )
