"""What a replica of a stage does, in a thread or in a worker process alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.records.block import Block


@dataclass(slots=True)
class StepCounts:
    """Running counts of one step; plain integers so that they travel between processes."""

    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    failed: int = 0
    with_error: int = 0
    retried: int = 0
    seconds: float = 0.0
    tallies: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """What the step's own function counts; replaced, never changed."""

    def __reduce__(self) -> tuple[Any, ...]:  # many times faster than what a dataclass with slots has
        return StepCounts, (
            self.rows_in,
            self.rows_out,
            self.filtered,
            self.failed,
            self.with_error,
            self.retried,
            self.seconds,
            self.tallies,
        )

    def add(self, other: StepCounts) -> None:
        """Add another replica's counts to these."""
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.filtered += other.filtered
        self.failed += other.failed
        self.with_error += other.with_error
        self.retried += other.retried
        self.seconds += other.seconds
        if other.tallies:
            self.tallies = Counter(self.tallies) + Counter(other.tallies)


class Task(Protocol):
    """One replica's work. A task is plain data until `open()`; before that it can be pickled to a worker.

    One that says `one_piece = True` answers every block with exactly one.
    """

    def open(self) -> None:
        """Set up (classes used as functions are made here, once a replica)."""
        ...

    def process(self, block: Block) -> Iterator[Block]:
        """Turn one block into blocks that cover the same range without a gap; failures travel in the blocks.

        Raises errors of `headrace.errors` only; such an error ends the run.
        """
        ...

    def counts(self) -> Mapping[str, StepCounts]:
        """Return the counts since `open()`, by step name."""
        ...

    def close(self) -> None:
        """Tear down; called once, also after an error."""
        ...
