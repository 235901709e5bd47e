"""The core nodes of a plan: frozen, dumb, and few. Everything else is composed from them.

A node points at its upstream nodes; a plan is the set of `Write` (or collecting) nodes at its ends. Two consumers of
one node are a branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from headrace.model.cache import PredictionCache
    from headrace.model.handler import ModelHandler
    from headrace.model.keyed import MemoryBudget
    from headrace.model.updates import ModelMetadata, WatchFilePattern
    from headrace.plan.retry import Retry
    from headrace.plan.steps import Durability, IfExists, Isolation, OnError, Step
    from headrace.sinks.sink import Sink
    from headrace.sources.source import Source


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """Rows of a source."""

    name: str
    source: Source
    columns: tuple[str, ...] | None = None
    """Columns to read; None is all. Set by the projection rule."""
    shuffle_seed: int | None = None
    """Read the splits in an order drawn from this seed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBatches:
    """One step over the rows of its upstream."""

    upstream: Node
    step: Step
    concurrency: int | None = None
    """Replicas; None lets the engine choose."""
    isolation: Isolation = "auto"

    @property
    def name(self) -> str:
        return self.step.name


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLimits:
    """Bounds within which the batcher chooses."""

    min_batch_size: int = 1
    max_batch_size: int | None = None
    max_batch_duration_secs: float | None = None
    """How long the first row of a batch may wait for others; None: as long as rows keep coming."""
    max_batch_weight: float | None = None
    """Most weight a batch; a row that is heavier goes alone."""
    weight_column: str | None = None
    """Column that says how much each row weighs; None: the handler says, or all weigh 1."""
    padded: bool = False
    """Whether the column has lengths: like ones go together, and a batch weighs its rows × the longest."""
    sort_window_rows: int = 4096
    """How many rows are looked over for like ones."""
    target_latency_secs: float | None = None
    """How long a row should take through the stage, waiting included; None: all for throughput."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceSpec:
    """A handler and how rows go in and answers come out: composition of data, no wrapper classes."""

    handler: ModelHandler[Any]
    inputs: str | tuple[str, ...] | Mapping[str, Any] | None = None
    output: str | Mapping[str, str] = "prediction"
    """A column name, or a mapping from keys of dict answers to column names."""
    prepared: bool = False
    """Whether a step in front makes what the model takes of `inputs`, into the private column for that."""
    model_id_column: str | None = "model_id"
    inference_args: Mapping[str, Any] = field(default_factory=dict)
    side_inputs: tuple[tuple[str, Any], ...] = ()
    """More inference_args, by name: a `Broadcast` each, and in the engine where its object is to be had."""
    limits: BatchLimits = BatchLimits()
    key_column: str | None = None
    """Column that names the model, where the handler is a `KeyedModelHandler`."""
    model_id: str | None = None
    """What the `model_id` column says, where that is not the handler's to say: a name that the user gave."""
    retry: Retry | None = None
    """None: a batch is asked once before it is halved, and a row alone once."""
    timeout_secs: float | None = None
    """How long a call for one batch may take."""
    version: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunInference:
    """A model over the rows of its upstream."""

    name: str
    upstream: Node
    spec: InferenceSpec
    concurrency: int = 1
    """Batches in flight. With isolation "thread" they share one model, with "process" each has its own copy."""
    isolation: Isolation = "thread"
    copies: int | None = None
    """Copies of the model, which the batches in flight share; None: as the isolation says."""
    idle_timeout_secs: float | None = None
    """After so long without a batch a copy leaves memory until it is needed."""
    on_error: OnError | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    """num_gpus, accelerator, min_ram of each copy, which runners see to."""
    durability: Durability = "range"
    """When an answer is safe from a kill: with its range of rows, in the output; or, one by one, when it is made."""
    cache: PredictionCache | None = None
    memory_budget: MemoryBudget | None = None
    """What the models of a `KeyedModelHandler`, or two versions of one model, may take together; None: all there is."""
    updates: WatchFilePattern | Iterable[ModelMetadata] | None = None
    """Where newer versions of the model come from while the run goes on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Limit:
    """The first rows, in the order of the source."""

    name: str
    upstream: Node
    rows: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Shuffle:
    """Rows in random order, drawn from a bounded buffer; the same seed gives the same order."""

    name: str
    upstream: Node
    seed: int
    buffer_rows: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Union:
    """The rows of all upstreams."""

    name: str
    upstreams: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshuffle:
    """A break: what is before and after never runs in one stage."""

    name: str
    upstream: Node


@dataclass(frozen=True, kw_only=True, eq=False)
class Write:
    """Rows to a sink."""

    name: str
    upstream: Node
    sink: Sink
    if_exists: IfExists = "resume"
    target_part_bytes: int | None = None
    rows_per_part: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Collect:
    """Rows to the caller (`take`, `to_arrow`, `iter_rows`), in the order of the input."""

    name: str
    upstream: Node


@dataclass(frozen=True, kw_only=True, eq=False)
class Broadcast:
    """Rows, and what is built of them, that are complete before the steps that use them begin.

    It ends a plan of its own; steps name it among their `side_inputs`.
    """

    name: str
    upstream: Node
    build: Callable[[pa.Table], Any] | None = None
    """None: the steps get the rows as a table."""
    version: str | None = None
    """Stands for the content of `build` in the identity of jobs."""


Node: TypeAlias = Read | MapBatches | RunInference | Limit | Shuffle | Union | Reshuffle
Output: TypeAlias = Write | Collect
AnyNode: TypeAlias = Node | Output


def upstreams(node: AnyNode) -> tuple[Node, ...]:
    """Return the nodes that a node reads from."""
    if isinstance(node, Read):
        return ()
    if isinstance(node, Union):
        return node.upstreams
    return (node.upstream,)
