"""Parts that are being filled and encoded, and where they are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace.engine.commit.entries import PartRecord
from headrace.records.position import is_whole
from headrace.sinks.folder import PartReceipt

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.engine.commit.done import Place
    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.piece import Piece
    from headrace.engine.commit.retrying import Answered
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure
    from headrace.sinks.sink import PartWriter

DEFAULT_PART_BYTES = 24 * 2**20
"""Bytes of Arrow columns: small enough to fill in a moment at the speed of a disk, large enough for readers."""
MAX_PIECES = 50_000
"""A part is closed at so many pieces whatever its size, so that bookkeeping stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSize:
    """When a part is full: by bytes of columns, or by rows."""

    target_bytes: int = DEFAULT_PART_BYTES
    rows: int | None = None

    @classmethod
    def of(cls, *, target_part_bytes: int | None, rows_per_part: int | None) -> PartSize:
        """Make the size of what the user asked for; with rows alone, bytes do not count.

        >>> PartSize.of(target_part_bytes=None, rows_per_part=None).target_bytes
        25165824
        """
        if target_part_bytes is None:
            target_part_bytes = DEFAULT_PART_BYTES if rows_per_part is None else 2**62
        return cls(target_bytes=max(1, target_part_bytes), rows=rows_per_part)

    def fill(self, *, rows: int, nbytes: int) -> float:
        """Return how full a part is; 1 or more is full."""
        by_rows = 0.0 if self.rows is None else rows / self.rows
        return max(by_rows, nbytes / self.target_bytes)

    def rows_to_take(self, piece_rows: int, piece_bytes: int, *, rows: int, nbytes: int) -> int:
        """Return how many more rows (at least 1) a part with `rows` and `nbytes` takes of a piece.

        >>> PartSize.of(target_part_bytes=None, rows_per_part=10).rows_to_take(100, 800, rows=4, nbytes=32)
        6
        """
        by_bytes = math.ceil((self.target_bytes - nbytes) / max(piece_bytes / piece_rows, 1e-9))
        by_rows = piece_rows if self.rows is None else self.rows - rows
        return max(1, min(by_bytes, by_rows, piece_rows))


@dataclass(slots=True, eq=False, kw_only=True)
class Part:
    """Rows in the order of the input that go into one file (or into none, when all were filtered out or failed)."""

    number: int | None = None
    """Given with the first row."""
    schema: pa.Schema | None = None
    pieces: list[Piece] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    errors: int = 0
    encoded: int = 0
    """Pieces that the writer has."""
    waiting_bytes: int = 0
    """Bytes that the writer has not."""
    closed: bool = False
    busy: bool = False
    """A thread is encoding it."""
    prepared: bool = False
    spent: bool = False
    """The writer alone has some of its rows: if it does not fill soon after all, it has to be closed as it is."""
    writer: PartWriter | None = None
    receipt: str | None = None
    failures: list[RowFailure] = field(default_factory=list)
    failed: list[FailedRow] = field(default_factory=list)
    """The journal's entries of the failures; their places count from the part's first row."""
    answered: list[Answered] = field(default_factory=list)
    """Where the rows of a retry belong."""
    written: int = 0
    """Rows that the writer has."""

    @property
    def end(self) -> Place:
        """Where the part ends."""
        return self.pieces[-1].unit, self.pieces[-1].end

    @property
    def ends_whole(self) -> bool:
        """Whether the part ends between two input rows, so that a later run may begin there."""
        return is_whole(self.pieces[-1].end)

    @property
    def file_bytes(self) -> int:
        """Size of the file, once it is prepared; 0 where the sink does not tell."""
        receipt = PartReceipt.parse(self.receipt) if self.receipt is not None else None
        return 0 if receipt is None else receipt.nbytes

    def is_full(self, size: PartSize) -> bool:
        """Say whether the part should be closed."""
        return size.fill(rows=self.rows, nbytes=self.nbytes) >= 1 or len(self.pieces) >= MAX_PIECES

    def record(self) -> PartRecord:
        """Return the journal's entry of a prepared part."""
        assert self.number is not None
        assert self.receipt is not None
        assert self.schema is not None
        return PartRecord(
            number=self.number,
            receipt=self.receipt,
            rows=self.rows,
            nbytes=self.file_bytes,
            schema=self.schema,
            answered=tuple(self.answered),
        )

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.pieces.append(piece)
        self.rows += piece.rows
        self.errors += piece.errors
        if piece.rows:
            self.nbytes += piece.nbytes
            self.waiting_bytes += piece.nbytes


def whole_cut(block: Block, rows: int) -> int | None:
    """Return the first row at or after `rows` at which another input row begins; None if there is none.

    >>> import pyarrow as pa
    >>> from headrace.records.block import Block, Unit
    >>> batch = pa.record_batch({"x": [1, 2, 3, 4]})
    >>> fanned = Block(batch=batch, unit=Unit(0), start=(0,), end=(9,), ordinals=np.array([0, 0, 0, 5]))
    >>> whole_cut(fanned, 1), whole_cut(fanned, 3), whole_cut(fanned, 4)
    (3, 3, None)
    """
    if rows >= block.num_rows:
        return None
    if block.ordinals is None:
        return rows
    begins = np.flatnonzero(np.diff(block.ordinals[rows - 1 :]))
    return rows + int(begins[0]) if len(begins) else None
