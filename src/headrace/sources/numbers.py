"""Numbers, made as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.records.block import Block, Origin, Unit
from headrace.records.columns import empty_columns
from headrace.records.plain import array_of_numbers
from headrace.sources.agreement import select_columns
from headrace.sources.source import Split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPLIT_ROWS = 131_072
BLOCK_ROWS = 65_536

_SCHEMA = pa.schema({"id": pa.int64()})


@dataclass(frozen=True, kw_only=True)
class NumberSource:
    """The numbers from 0 to `stop` in a column `id`; made by `headrace.range`."""

    stop: int

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"range({self.stop})"

    def splits(self) -> Sequence[Split]:
        """List the splits: a quarter of a million numbers each."""
        return [
            Split(
                number=number,
                label=f"{self.name} from {low:,}",
                size_bytes=8 * (min(low + SPLIT_ROWS, self.stop) - low),
                detail=(low, min(low + SPLIT_ROWS, self.stop)),
                rows=min(low + SPLIT_ROWS, self.stop) - low,
            )
            for number, low in enumerate(range(0, self.stop, SPLIT_ROWS))
        ]

    def schema(self) -> pa.Schema:
        """Return the column `id`."""
        return _SCHEMA

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the numbers of a split."""
        low, high = split.detail
        names = _SCHEMA.names if columns is None else select_columns(_SCHEMA, columns, reader=self.name).names
        for first in range(start // BLOCK_ROWS * BLOCK_ROWS, high - low, BLOCK_ROWS):
            end = min(first + BLOCK_ROWS, high - low)
            if names:
                values = array_of_numbers(np.arange(low + first, low + end, dtype=np.int64))
                batch = pa.RecordBatch.from_arrays([values], schema=_SCHEMA)
            else:
                batch = empty_columns(end - first)
            yield Block(batch=batch, unit=Unit(0), start=(first,), end=(end,), origin=Origin(self.name, -low))

    def fingerprint(self, split: Split) -> str:
        """Return the range itself: it says all."""
        return repr(split.detail)

    def version(self, split: Split) -> str:
        """Return the range itself."""
        return repr(split.detail)
