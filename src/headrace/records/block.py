"""Blocks: record batches that know which input rows they stand for.

Everything that moves between stages is a `Block`. Its rows carry their identity (unit, ordinal) beside the columns, not
in them; its cover `[start, end)` says which part of the unit it accounts for, also where rows were filtered out or
failed. A stage turns one block into blocks that cover the same range without a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.masking import masked
from headrace.records.cutter import Cutter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.records.failure import RowFailure
    from headrace.records.position import Position


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """What positions count in: a split, seen along one path through the plan's unions.

    Units compare in the order of the input: by split number first, then by lane.
    """

    split: int
    """Number of the split, counted over all sources of the plan."""
    lane: tuple[int, ...] = ()
    """The inputs taken at the unions passed so far."""

    def __reduce__(self) -> tuple[Any, ...]:  # many times faster than what a dataclass with slots has
        return Unit, (self.split, self.lane)


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a block was read from, so that messages can name file and row."""

    file: str
    base: int = 0
    """Ordinal of the file's first row within its split (splits may pack several files, or start inside one)."""
    more: tuple[tuple[int, str], ...] = ()
    """Files that begin further on, with the ordinals of their first rows: a block may hold many tiny files."""

    def __post_init__(self) -> None:
        if "://" in self.file:
            object.__setattr__(self, "file", masked(self.file))

    @classmethod
    def joined(cls, origins: Sequence[Origin | None]) -> Origin | None:
        """Return the origin of blocks that follow one another; None where one of them has none.

        >>> Origin.joined([Origin("a"), Origin("a"), Origin("b", 7)]).place_of(8)
        ('b', 1)
        """
        files: dict[int, str] = {}
        for origin in dict.fromkeys(origins):
            if origin is None:
                return None
            files |= {origin.base: origin.file, **dict(origin.more)}
        (base, file), *more = sorted(files.items())
        return cls(file, base, tuple(more))

    def place_of(self, ordinal: int) -> tuple[str, int]:
        """Return the row's file and its number in it, from 0 (within the split where the file is cut)."""
        index = bisect_right(self.more, ordinal, key=itemgetter(0))
        base, file = self.more[index - 1] if index else (self.base, self.file)
        return file, ordinal - base

    def clip(self, first: int, last: int) -> Origin:
        """Return the files that have rows in `[first, last]`, and perhaps some that are empty."""
        if not self.more:
            return self
        files = [(self.base, self.file), *self.more]
        low = max(0, bisect_right(files, first, key=itemgetter(0)) - 1)
        (base, file), *more = files[low : max(low + 1, bisect_right(files, last, key=itemgetter(0)))]
        return Origin(file, base, tuple(more))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A record batch, the range of input rows that it covers, and the failures among them."""

    batch: pa.RecordBatch
    unit: Unit
    start: Position
    end: Position
    ordinals: NDArray[np.int64] | None = None
    """For each row, the ordinal of the input row it comes from; None when row i is `start[0] + i`."""
    failures: tuple[RowFailure, ...] = ()
    origin: Origin | None = None
    errors: int = 0
    """Rows of the batch that were nulled by on_error="null" rather than answered."""
    _nbytes: int | None = field(default=None, init=False, repr=False, compare=False)
    """Of the batch, once they were counted: queues ask again and again, and counting is no trifle."""

    @property
    def num_rows(self) -> int:
        """Rows held now (not the rows covered)."""
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns; at least 1, so that queues of empty blocks are bounded too."""
        if self._nbytes is None:
            object.__setattr__(self, "_nbytes", max(1, int(self.batch.nbytes)))
        return self._nbytes or 1

    def ordinal_array(self) -> NDArray[np.int64]:
        """Return the ordinals of the rows, made on demand for dense blocks."""
        if self.ordinals is not None:
            return self.ordinals
        return np.arange(self.start[0], self.start[0] + self.num_rows, dtype=np.int64)

    def ordinal_of(self, row: int) -> int:
        """Return the ordinal of one row."""
        return int(self.ordinals[row]) if self.ordinals is not None else self.start[0] + row

    def is_alone(self, row: int) -> bool:
        """Say whether no other row comes from the same input row, as far as can be seen from here.

        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"x": [1, 2, 3]})
        >>> fanned = Block(batch=batch, unit=Unit(0), start=(0,), end=(5,), ordinals=np.array([0, 0, 4]))
        >>> [fanned.is_alone(row) for row in range(3)]
        [False, False, True]
        """
        ordinal = self.ordinal_of(row)
        if any(len(edge) > 1 and edge[0] == ordinal for edge in (self.start, self.end)):
            return False
        beside = [i for i in (row - 1, row + 1) if 0 <= i < self.num_rows]
        return all(self.ordinal_of(i) != ordinal for i in beside)

    def with_batch(self, batch: pa.RecordBatch) -> Block:
        """Return the block with other columns for the same rows."""
        assert batch.num_rows == self.batch.num_rows, (batch.num_rows, self.batch.num_rows)
        return replace(self, batch=batch)

    def derive(
        self,
        batch: pa.RecordBatch,
        parents: NDArray[np.int64] | None,
        failures: Sequence[RowFailure] = (),
        errors: int = 0,
    ) -> Block:
        """Return the block after a step: `parents[i]` is the row of this block that row i of `batch` comes from.

        `parents=None` means that rows stayed as they were, one for one.
        """
        if parents is None:
            assert batch.num_rows == self.num_rows, (batch.num_rows, self.num_rows)
            ordinals = self.ordinals
        else:
            ordinals = self.ordinal_array()[parents]
        return replace(
            self,
            batch=batch,
            ordinals=ordinals,
            failures=(*self.failures, *failures),
            errors=self.errors + errors,
        )

    def cut(self, rows: Sequence[int]) -> list[Block]:
        """Cut before each of the given rows (ascending, 0 < row < num_rows) into blocks that cover the same range.

        >>> import pyarrow as pa
        >>> b = Block(batch=pa.record_batch({"x": [1, 2, 3]}), unit=Unit(0), start=(0,), end=(3,))
        >>> [(p.start, p.end, p.num_rows) for p in b.cut([2])]
        [((0,), (2,), 2), ((2,), (3,), 1)]
        """
        if not rows:
            return [self]
        cutter = Cutter(self)
        bounds = [self.start, *(cutter.before_row(row) for row in rows), self.end]
        edges = [0, *rows, self.num_rows]
        return [
            self._piece(edges[i], edges[i + 1], bounds[i], bounds[i + 1], first=i == 0, last=i == len(rows))
            for i in range(len(edges) - 1)
        ]

    def cut_by_bytes(self, target_bytes: int) -> list[Block]:
        """Cut into blocks of about `target_bytes` each, so that fan-out does not make giants."""
        pieces = min(self.num_rows, -(-self.nbytes // target_bytes))
        if pieces <= 1:
            return [self]
        edges = sorted({self.num_rows * i // pieces for i in range(1, pieces)} - {0})
        return self.cut(edges)

    def clip(self, start: Position, end: Position) -> Block | None:
        """Return the part of the block inside `[start, end)` (both between whole rows), or None if there is none."""
        low, high = max(self.start, start), min(self.end, end)
        if low >= high:
            return None
        if (low, high) == (self.start, self.end):
            return self
        ordinals = self.ordinal_array()
        a = int(np.searchsorted(ordinals, low[0])) if low != self.start else 0
        b = int(np.searchsorted(ordinals, high[0])) if high != self.end else self.num_rows
        return self._piece(a, b, low, high, first=low == self.start, last=high == self.end)

    def _piece(self, a: int, b: int, start: Position, end: Position, *, first: bool, last: bool) -> Block:
        failures = self.failures
        if failures:
            failures = tuple(f for f in failures if (first or f.ordinal >= start[0]) and (last or f.ordinal < end[0]))
        dense = self.ordinals is None and len(start) == 1 and self.start[0] + a == start[0]
        return replace(
            self,
            batch=self.batch.slice(a, b - a),
            start=start,
            end=end,
            ordinals=None if dense else self.ordinal_array()[a:b],
            failures=failures,
            errors=self.errors if a == 0 else 0,
        )


def dense_block(batch: pa.RecordBatch, *, split: int, first: int, origin: Origin | None = None) -> Block:
    """Make the block of a source: row i of the batch is the input row `first + i` of the split.

    >>> import pyarrow as pa
    >>> dense_block(pa.record_batch({"x": [1, 2]}), split=0, first=10).end
    (12,)
    """
    return Block(batch=batch, unit=Unit(split), start=(first,), end=(first + batch.num_rows,), origin=origin)
