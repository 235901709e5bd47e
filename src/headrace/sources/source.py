"""The contract of a source: deterministic splits, and blocks read from one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from headrace.records.block import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A deterministic piece of the input, read by one worker from start to end.

    Which splits there are depends on the input alone, never on concurrency or memory, so that a later run of the same
    job finds the same rows in the same places. Splits are pickled to worker processes.
    """

    number: int
    """Position within its source, from 0, in the order of the input."""
    label: str
    """What a person calls it: a file, or a file and byte range."""
    size_bytes: int
    """Bytes to read, for progress; 0 if unknown."""
    detail: Any = None
    """Whatever the source needs to read it; small and picklable."""
    rows: int | None = None
    """Number of rows, where known without reading."""

    def __post_init__(self) -> None:
        if "://" in self.label:
            object.__setattr__(self, "label", masked(self.label))


@runtime_checkable
class Source(Protocol):
    """Where rows come from. Implement it (structurally; no base class) to read what Headrace does not.

    A source is plain data until `splits()` or `schema()` is called; it is pickled to worker processes. All three
    methods raise errors of `headrace.errors` (`NoInputError`, `SchemaError`, `SourceError`) and no others.

    A source of squares, to be used as `headrace.read(Squares(4))`:

    >>> import pyarrow as pa
    >>> from dataclasses import dataclass
    >>> from headrace.records.block import Origin, dense_block
    >>> @dataclass(frozen=True)
    ... class Squares:
    ...     stop: int
    ...     name = "squares"
    ...     def splits(self):
    ...         return [Split(number=0, label="all", size_bytes=8 * self.stop, rows=self.stop)]
    ...     def schema(self):
    ...         return pa.schema({"n": pa.int64()})
    ...     def read(self, split, *, columns, start=0):
    ...         batch = pa.record_batch({"n": [i * i for i in range(start, self.stop)]})
    ...         yield dense_block(batch.select(columns or ["n"]), split=0, first=start, origin=Origin(self.name))
    ...     def fingerprint(self, split):
    ...         return str(self.stop)
    ...     version = fingerprint
    >>> isinstance(Squares(4), Source)
    True
    >>> split, = Squares(4).splits()
    >>> [block.batch.to_pydict() for block in Squares(4).read(split, columns=None, start=2)]
    [{'n': [4, 9]}]
    """

    @property
    def name(self) -> str:
        """Short name for plans and messages, such as "read_csv(data/*.csv)"."""
        ...

    def splits(self) -> Sequence[Split]:
        """List the splits, looking at names and sizes only as far as possible; called once a run, cached by you."""
        ...

    def schema(self) -> pa.Schema | None:
        """Return the columns and types that hold for the run, from a sample; None when nothing can be said."""
        ...

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the split's rows as blocks of about 1–32 MB, with ordinals counted from 0 in the split.

        Blocks have `unit=Unit(0)`: the engine puts the true unit in. Their covers follow one another without a gap from
        `(0,)` (or any place at or before `(start,)`) to the end. A row that cannot be read becomes a failure of the
        block (stage = this source's name) and is covered without being in the batch. `columns=None` means all of them.
        Only columns asked for are returned, in the source's order. No block crosses from one file into another, so that
        `origin` can name file and row.
        """
        ...

    def fingerprint(self, split: Split) -> str:
        """Return a digest of the split's content, cheap where the store has one (etag, version).

        Equal digests mean equal rows in equal places. Called at most once a split and run, in a worker, about when
        the split is read (so that the page cache serves both).
        """
        ...

    def version(self, split: Split) -> str:
        """Return what can be had without reading and changes whenever the content may have: size and mtime, etag.

        A split whose version is as recorded is taken as unchanged; otherwise `fingerprint` decides.
        """
        ...
