"""Encoding: a part's pieces, in order, into the sink's writer."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from headrace.engine.commit.crash import crash_point
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.piece import Piece
from headrace.sinks.columns import conformed
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from headrace.engine.commit.holdings import Holdings
    from headrace.engine.commit.part import Part
    from headrace.engine.commit.retrying import Retrying
    from headrace.records.block import Block
    from headrace.sinks.sink import PartWriter, Sink

EAGER_BYTES = 2**20
"""An open part is encoded while it fills, so many bytes at a time."""


class Encoder:
    """Feeds pieces to writers, in whatever thread calls it; one thread a part at a time."""

    def __init__(
        self,
        sink: Sink,
        holdings: Holdings,
        staging: str,
        changed: threading.Condition,
        *,
        fills_soon: Callable[[], bool],
        stage: Callable[[str], str],
        retrying: Retrying | None = None,
    ) -> None:
        """`changed` guards parts and holdings, and is notified as parts are encoded.

        `fills_soon` says whether parts fill so fast that their rows need not be kept for a segment; `stage` takes a
        prepared part's receipt to where it survives this machine, and returns the receipt that says so.
        """
        self._sink = sink
        self._holdings = holdings
        self._staging = staging
        self._changed = changed
        self._fills_soon = fills_soon
        self._retrying = retrying
        self._stage = stage

    def wants(self, part: Part) -> bool:
        """Say whether an open part has enough for a helping."""
        return not part.busy and part.waiting_bytes >= EAGER_BYTES

    def run(self, part: Part) -> bool:
        """Encode what the part has; return whether it was closed and has to be sealed now.

        Raises:
            SinkError: the sink refuses.
        """
        with self._refusing(part):
            while isinstance(piece := self._next(part), Piece):
                self._write(part, piece)
        return piece == "closed"

    def seal(self, part: Part) -> None:
        """Make an encoded part durable, which waits for the disk.

        Raises:
            SinkError: the sink refuses.
        """
        with self._refusing(part):
            if part.number is not None:
                part.receipt = self._prepare(part)
        with self._changed:
            part.prepared = True

    @contextmanager
    def _refusing(self, part: Part) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(
                os.path.join(self._sink.folder or self._sink.name, f"part {part.number}"), error
            ) from error

    def _next(self, part: Part) -> Piece | Literal["later", "closed"]:
        with self._changed:
            if part.encoded < len(part.pieces):
                piece = part.pieces[part.encoded]
                part.waiting_bytes -= piece.nbytes if piece.rows else 0
                self._changed.notify_all()
                return piece
            # Decided under one lock with "there is no more", so that no two threads prepare a part.
            part.busy = part.closed
            return "closed" if part.closed else "later"

    def _write(self, part: Part, piece: Piece) -> None:
        block = self._holdings.block_of(piece)
        self._note(part, block)
        if block.num_rows:
            assert part.schema is not None
            part.writer = part.writer or self._open(part)
            part.writer.write(conformed(block.batch, part.schema, sink=self._sink.name))
        with self._changed:
            part.encoded += 1
            if part.closed or self._fills_soon():
                # It will be committed in a moment: nothing is gained by keeping the rows for a segment.
                part.spent = part.spent or piece.saved is None
                self._holdings.release_memory(piece)

    def _note(self, part: Part, block: Block) -> None:
        """Note what the journal has to know of the block's rows."""
        if self._retrying is None:
            part.failures.extend(block.failures)
            part.failed.extend(FailedRow.of(failure, block, before=part.written) for failure in block.failures)
        else:
            failures = self._retrying.counted(block)
            part.failures.extend(failures)
            part.failed.extend(self._retrying.failed(failures, block))
            part.answered.extend(self._retrying.answered(block, before=part.written))
        part.written += block.num_rows

    def _prepare(self, part: Part) -> str:
        part.writer = part.writer or self._open(part)
        crash_point("part.written")
        receipt = self._stage(part.writer.prepare())
        crash_point("part.prepared")
        return receipt

    def _open(self, part: Part) -> PartWriter:
        assert part.number is not None
        assert part.schema is not None
        return self._sink.open_part(part.number, part.schema, self._staging)
