"""Holdings: what is in memory and not yet in a part, with a budget, and what goes to segments when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.commit.piece import Piece, runs, whole

if TYPE_CHECKING:
    from headrace.engine.commit.segments import Segments
    from headrace.records.block import Block


class Holdings:
    """Keeps the blocks of pieces: in memory while the budget allows, in segments when they wait. Not thread-safe.

    A piece is *held* while its block is in memory, *saved* once a segment has it.
    """

    def __init__(self, segments: Segments, *, budget_bytes: int) -> None:
        self._segments = segments
        self._budget_bytes = budget_bytes
        self._unsaved: dict[Piece, None] = {}
        """Held, not saved; in the order of arrival."""
        self._spare: dict[Piece, None] = {}
        """Held and saved, so that memory can be had for nothing."""
        self._held_bytes = 0
        self._saved_rows = 0

    @property
    def saved_rows(self) -> int:
        """Rows that segments have and no committed part."""
        return self._saved_rows

    @property
    def held_bytes(self) -> int:
        """Memory in use."""
        return self._held_bytes

    @property
    def oldest_arrival(self) -> float | None:
        """When the oldest unsaved piece came."""
        return next(iter(self._unsaved)).arrived if self._unsaved else None

    def take(self, piece: Piece) -> None:
        """Begin to hold a piece, unless it is in a segment already."""
        if piece.saved is None:
            self._unsaved[piece] = None
            self._held_bytes += piece.cost
        else:
            self._saved_rows += piece.rows

    def block_of(self, piece: Piece) -> Block:
        """Return the block, from memory or from its segment; safe to call from any thread."""
        block = piece.block
        if block is not None:
            return block
        assert piece.saved is not None, "a piece is in memory or in a segment"
        clipped = self._segments.load(piece.saved).clip(piece.start, piece.end)
        assert clipped is not None
        return clipped

    def split(self, piece: Piece, row: int) -> tuple[Piece, Piece]:
        """Cut a piece before a row at which another input row begins."""
        first, second = self.block_of(piece).cut([row])
        halves = (
            Piece.of(first, now=piece.arrived, saved=piece.saved),
            Piece.of(second, now=piece.arrived, saved=piece.saved),
        )
        if piece.saved is not None:
            self._segments.share(piece.saved)
            self._drop(piece)
            for half in halves:
                half.altered = piece.altered
                if piece.altered:
                    self._held_bytes += half.cost
                else:
                    half.block = None
        else:
            # The halves take the piece's place, so that the oldest stays the first.
            order = [half for p in self._unsaved for half in (halves if p is piece else (p,))]
            self._unsaved = dict.fromkeys(order)
            self._held_bytes += halves[0].cost + halves[1].cost - piece.cost
        return halves

    def replace(self, piece: Piece, block: Block) -> Piece:
        """Put another block in the place of a piece's; what a segment has of it stays good for a later run."""
        new = Piece.of(block, now=piece.arrived, saved=piece.saved)
        self._unsaved = {new if p is piece else p: None for p in self._unsaved}
        self._drop(piece)
        self._held_bytes += new.cost
        if piece.saved is not None:
            new.altered = True
            self._saved_rows += new.rows - piece.rows
        return new

    def release_memory(self, piece: Piece) -> None:
        """Let the block go from memory: whoever needed it has it."""
        self._unsaved.pop(piece, None)
        self._drop(piece)

    def leave(self, piece: Piece) -> None:
        """Count a piece no longer: its part is full, so that it will be gone from memory as soon as it is encoded."""
        if self._unsaved.pop(piece, piece) is None:
            self._held_bytes -= piece.cost
            piece.cost = 0

    def release(self, piece: Piece) -> None:
        """Forget a piece: it is in a committed part."""
        self.release_memory(piece)
        if piece.saved is not None:
            self._segments.release(piece.saved)
            self._saved_rows -= piece.rows
            piece.saved = None

    def save(self) -> None:
        """Write what is unsaved to segments, as far as a later run could use it; where the disk is tight, nothing.

        Raises:
            SinkError: the disk refuses.
        """
        if not self._segments.tight:
            self._save_whole()

    def _save_whole(self) -> None:
        for run in runs(self._unsaved):
            self._save_run(whole(run))

    def make_room(self) -> None:
        """Bring memory back under the budget, by dropping what is saved, then by saving everything.

        Raises:
            SinkError: the disk refuses.
        """
        if self._held_bytes <= self._budget_bytes:
            return
        self._drop_spare()
        if self._held_bytes > self._budget_bytes:
            self._save_whole()
            for run in runs(self._unsaved):
                self._save_run(run)
            self._drop_spare()

    def _save_run(self, run: list[Piece]) -> None:
        if not run:
            return
        blocks = [piece.block for piece in run]
        for piece, saved in zip(run, self._segments.append([b for b in blocks if b is not None]), strict=True):
            piece.saved = saved
            self._saved_rows += piece.rows
            del self._unsaved[piece]
            self._spare[piece] = None

    def _drop_spare(self) -> None:
        for piece in list(self._spare):
            self._drop(piece)

    def _drop(self, piece: Piece) -> None:
        if piece.block is not None:
            piece.block = None
            self._held_bytes -= piece.cost
        self._spare.pop(piece, None)
