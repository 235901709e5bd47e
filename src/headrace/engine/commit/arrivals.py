"""Pieces arrive in any order and leave in the order of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BalanceError
from headrace.records.position import END, START

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.commit.done import Place
    from headrace.engine.commit.piece import Piece
    from headrace.records.block import Unit
    from headrace.records.position import Position


class Arrivals:
    """Joins ends to starts. Pure: no threads, no clock, no files."""

    def __init__(self, units: Sequence[Unit], *, frontier: Place | None = None) -> None:
        self._units = units
        self._index = {unit: i for i, unit in enumerate(units)}
        self._at = 0
        self._position: Position = START
        self._waiting: dict[Unit, dict[Position, Piece]] = {}
        if frontier is not None:
            self._at, self._position = self._index[frontier[0]], frontier[1]
            self._advance()

    @property
    def complete(self) -> bool:
        """Whether every unit has reached its end."""
        return self._at >= len(self._units)

    @property
    def needed_split(self) -> int | None:
        """The split whose rows are waited for; None at the end."""
        return None if self.complete else self._units[self._at].split

    def add(self, piece: Piece) -> list[Piece]:
        """Take a piece; return those that are now in order, oldest first.

        Raises:
            BalanceError: the piece covers what has been delivered already, or belongs to no expected unit.
        """
        index = self._index.get(piece.unit)
        if index is None:
            raise BalanceError(f"rows of {piece.unit} arrived, which is not part of the plan")
        if index < self._at or (index == self._at and piece.start < self._position):
            raise BalanceError(f"{piece.unit} {piece.start}–{piece.end} was delivered twice")
        waiting = self._waiting.setdefault(piece.unit, {})
        if piece.start in waiting:
            raise BalanceError(f"{piece.unit} {piece.start}–{piece.end} was delivered twice")
        waiting[piece.start] = piece
        return self._take()

    def waiting(self) -> list[Piece]:
        """Return the pieces that are not in order yet, sorted."""
        return [p for unit in sorted(self._waiting) for _, p in sorted(self._waiting[unit].items(), key=lambda e: e[0])]

    def missing(self) -> str:
        """Say what is waited for.

        >>> from headrace.records.block import Unit
        >>> Arrivals([Unit(0)]).missing()
        'split 0 from row 0'
        """
        if self.complete:
            return "nothing"
        return f"split {self._units[self._at].split} from row {self._position[0]}"

    def _take(self) -> list[Piece]:
        ready: list[Piece] = []
        while not self.complete:
            waiting = self._waiting.get(self._units[self._at])
            piece = waiting.pop(self._position, None) if waiting else None
            if piece is None:
                break
            ready.append(piece)
            self._position = piece.end
            self._advance()
        return ready

    def _advance(self) -> None:
        if self._position == END:
            waiting = self._waiting.pop(self._units[self._at], None)
            if waiting:
                raise BalanceError(f"{self._units[self._at]} has rows that overlap: {sorted(waiting)}")
            self._at, self._position = self._at + 1, START
