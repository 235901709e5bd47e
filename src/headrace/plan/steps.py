"""Steps: the functions of a MapBatches node, as frozen data. What runs them is in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.plan.retry import Retry

OnError: TypeAlias = Literal["fail", "dead_letter", "null"]
IfExists: TypeAlias = Literal["resume", "overwrite", "fail"]
BatchFormat: TypeAlias = Literal["rows", "numpy", "pandas", "pyarrow"]
Isolation: TypeAlias = Literal["auto", "thread", "process"]
Durability: TypeAlias = Literal["range", "row"]
StepKind: TypeAlias = Literal["map", "flat_map", "filter", "map_batches", "columns", "add_column", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One function over rows or batches.

    `function` is a callable, or a class whose instances are callable (made once a replica, with `setup()` and
    `close()` where it has them). For kind "columns" it is one of Headrace's own functions from record batch to record
    batch, row for row. For "prepare" it makes a model's inputs ready, many rows at a time, into a private column.
    """

    name: str
    kind: StepKind
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    """Arguments for the class's constructor."""
    kwargs: tuple[tuple[str, Any], ...] = ()
    side_inputs: tuple[tuple[str, Any], ...] = ()
    """Further arguments of each call, by name: a `Broadcast` each, and in the engine where its object is to be had."""
    batch_format: BatchFormat = "rows"
    batch_size: int | None = None
    row_wise: bool = False
    """map_batches only: the function answers row by row, so that a failing batch may be halved."""
    on_error: OnError | None = None
    """None: as the run says."""
    output_schema: pa.Schema | None = None
    retry: Retry | None = None
    """None: a call is made once."""
    timeout_secs: float | None = None
    """How long a call for one row (for one batch: map_batches) may take; None: as long as it likes."""
    version: str | None = None
    """Stands for the function's content in the job's identity, where that cannot be fingerprinted."""
    reads: tuple[str, ...] | None = None
    """Columns that the function reads; None: perhaps any."""
    native: bool = False
    """Spends its time in native code that lets go of the interpreter lock, so that threads do what processes would."""
    advisory: bool = False
    """Does not count in the job's identity: it guides the engine and changes no result, or what it does is counted
    with the model behind it."""

    @property
    def fans_out(self) -> bool:
        """Whether rows out need not match rows in."""
        return self.kind == "flat_map" or (self.kind == "map_batches" and not self.row_wise)
