"""How many bytes of columns make a file of the size asked for: measured on the first rows, then on each part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.commit.part import PartSize

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.sinks.sink import Sink

SAMPLE_BYTES = 4 * 2**20
"""Of columns: as many as compression looks at together."""


class Sizing:
    """The size of the parts to come. Not thread-safe.

    A file is taken for a fixed part (header, footer) and so many bytes for each byte of columns. A sink that cannot
    measure rows beforehand has its first part cut by the bytes of columns.
    """

    def __init__(self, sink: Sink, *, target_part_bytes: int | None, rows_per_part: int | None) -> None:
        self.size = PartSize.of(target_part_bytes=target_part_bytes, rows_per_part=rows_per_part)
        self._target = target_part_bytes
        self._measure: Callable[[pa.RecordBatch], int] | None = getattr(sink, "encoded_bytes", None)
        self._fixed = 0

    def wants_rows(self) -> bool:
        """Say whether it still waits for the first rows."""
        return self._target is not None and self._measure is not None

    def begin(self, batch: pa.RecordBatch) -> None:
        """Measure the first rows: many of them, then as many as a part would have.

        Raises:
            SinkError: the sink cannot encode them.
        """
        assert self._measure is not None
        rows = _rows_in(batch, SAMPLE_BYTES)
        if batch.slice(0, rows).nbytes > 4 * SAMPLE_BYTES:
            return  # a row so large is not encoded twice
        measure, self._measure = self._measure, None
        self._fixed = measure(batch.slice(0, 0))
        for _ in range(2):
            sample = batch.slice(0, rows)
            self._learn(sample.nbytes, measure(sample))
            rows = _rows_in(batch, min(self.size.target_bytes, SAMPLE_BYTES))

    def observe(self, *, nbytes: int, written: int) -> None:
        """Learn from a finished part of `nbytes` of columns; what ended far too early tells too little."""
        if self._target is not None and written and 2 * nbytes >= min(self.size.target_bytes, SAMPLE_BYTES):
            self._learn(nbytes, written)

    def _learn(self, nbytes: int, written: int) -> None:
        assert self._target is not None
        per_byte = max(1, written - self._fixed) / max(1, nbytes)
        self.size = replace(self.size, target_bytes=max(1, int((self._target - self._fixed) / per_byte)))


def _rows_in(batch: pa.RecordBatch, nbytes: int) -> int:
    rows, total = int(batch.num_rows), int(batch.nbytes)
    return min(rows, max(1, rows * nbytes // max(1, total)))
