"""Filling: pieces, in the order of the input, go into parts."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.engine.commit.fitting import wider
from headrace.engine.commit.part import Part, whole_cut
from headrace.errors import HeadraceError, SinkError
from headrace.records.types import TypeQuarrelError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.engine.commit.fitting import Fitting
    from headrace.engine.commit.holdings import Holdings
    from headrace.engine.commit.piece import Piece
    from headrace.engine.commit.sizing import Sizing
    from headrace.sinks.sink import Sink


class Filling:
    """The part that fills and those that are full and not committed. Not thread-safe.

    `wants` says whether a part that fills has enough to be encoded, `start` lets it be.
    """

    def __init__(
        self,
        sink: Sink,
        sizing: Sizing,
        fitting: Fitting,
        holdings: Holdings,
        *,
        schema: pa.Schema | None,
        next_number: int,
        wants: Callable[[Part], bool],
        start: Callable[[Part], None],
    ) -> None:
        self._sink, self._sizing, self._fitting, self._holdings = sink, sizing, fitting, holdings
        self._wants, self._start = wants, start
        self._next_number = next_number
        self._closed_count = 0
        self.part: Part | None = None
        self.closed: deque[Part] = deque()
        self.schema = schema
        """The widest schema so far."""
        self.empty_schema: pa.Schema | None = None
        """Of blocks without rows: better than none if there never are any rows."""

    @property
    def fill(self) -> float:
        """How full the part that fills is."""
        return 0.0 if self.part is None else self._sizing.size.fill(rows=self.part.rows, nbytes=self.part.nbytes)

    @property
    def progress(self) -> float:
        """How many parts have been filled, a growing number."""
        return self._closed_count + self.fill

    def discard(self) -> None:
        """Throw away what is not prepared."""
        for part in [*self.closed, *([self.part] if self.part else [])]:
            if part.writer is not None and not part.prepared:
                with suppress(OSError, HeadraceError):
                    part.writer.discard()

    def append(self, piece: Piece) -> None:
        """Take the piece that follows.

        Raises:
            SinkError: the sink cannot take its rows.
            TooManyFailuresError: more rows fail there than may.
        """
        rest: Piece | None = self._fitted(piece)
        while rest is not None:
            part = self._part_for(rest)
            if part.rows and rest.is_giant:  # it begins a part of its own, which a sink may write as suits giants
                self.close()
                part = self._part_for(rest)
            piece, rest = rest, None
            if piece.rows:
                if self._sizing.wants_rows():
                    self._sizing.begin(self._holdings.block_of(piece).batch)
                row = self._sizing.size.rows_to_take(piece.rows, piece.nbytes, rows=part.rows, nbytes=part.nbytes)
                cut = None if row >= piece.rows else whole_cut(self._holdings.block_of(piece), row)
                if cut is not None:
                    piece, rest = self._holdings.split(piece, cut)
            part.add(piece)
            if part.is_full(self._sizing.size):
                if piece.is_giant:
                    self._holdings.leave(piece)
                self.close()
            elif self._wants(part):
                self._start(part)

    def close(self) -> None:
        """Let the part that fills be full."""
        part, self.part = self.part, None
        if part is None or not part.pieces:
            return
        part.closed = True
        self.closed.append(part)
        self._closed_count += 1
        self._start(part)

    @property
    def backlog_bytes(self) -> int:
        """Bytes in parts that no writer has."""
        parts = [*self.closed, self.part] if self.part is not None else self.closed
        return sum(part.waiting_bytes for part in parts)

    @property
    def all_prepared(self) -> bool:
        """Whether every part that is full is prepared."""
        return all(part.prepared for part in self.closed)

    def ready(self) -> list[Part]:
        """Return the parts that may be committed: the first prepared ones, up to the last that ends between rows."""
        ready: list[Part] = []
        for part in self.closed:
            if not part.prepared:
                break
            ready.append(part)
        while ready and not ready[-1].ends_whole:
            ready.pop()
        return ready

    def _fitted(self, piece: Piece) -> Piece:
        if not piece.rows:
            return piece
        block = self._holdings.block_of(piece)
        fitted = self._fitting.fit(block, self.schema)
        return piece if fitted is block else self._holdings.replace(piece, fitted)

    def _part_for(self, piece: Piece) -> Part:
        if piece.rows:
            self._widen(piece)
        elif self.empty_schema is None:
            self.empty_schema = piece.schema
        if self.part is None:
            self.part = Part()
        if piece.rows and self.part.number is None:
            self.part.number, self.part.schema = self._next_number, self.schema
            self._next_number += 1
        return self.part

    def _widen(self, piece: Piece) -> None:
        known = self.schema
        if known is not None and piece.schema.equals(known):
            return
        try:
            wide = wider(known, piece.schema, self._sink)
        except TypeQuarrelError as error:
            origin = piece.block.origin if piece.block is not None else None
            of = f" from {origin.file}" if origin is not None else ""
            raise SinkError(
                f"{self._sink.name}: column {error.column!r} is {error.left} in earlier rows and {error.right} in rows"
                f"{of}; make the step that writes it answer one type, or pass dtypes= where it is read"
            ) from error
        if known is None or not wide.equals(known):
            self._sink.check(wide)
            self.schema = wide
            if self.part is not None and self.part.rows:
                self.close()
