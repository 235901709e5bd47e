"""Pages of answers: what is kept, moved and read back as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE_ROWS = 64
PAGE_BYTES = 2**18


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows that were answered together, with the key of each."""

    keys: tuple[bytes, ...]
    answers: bytes
    """The rows as an Arrow stream."""

    @property
    def nbytes(self) -> int:
        """Bytes of the answers and their keys."""
        return len(self.answers) + sum(map(len, self.keys))


def pages_of(keys: Sequence[bytes], answers: pa.RecordBatch) -> list[Page]:
    """Cut answers, of which each has a key, into pages of up to 64 rows or 256 KB.

    >>> [len(page.keys) for page in pages_of([b"a"] * 100, pa.record_batch({"0": range(100)}))]
    [64, 36]
    """
    size = max(1, min(PAGE_ROWS, PAGE_BYTES * answers.num_rows // max(1, answers.nbytes)))
    pages = []
    for at in range(0, answers.num_rows, size):
        some = answers.slice(at, size)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, some.schema) as writer:
            writer.write_batch(some)
        pages.append(Page(tuple(keys[at : at + size]), stream.getvalue().to_pybytes()))
    return pages
