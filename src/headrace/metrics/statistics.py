"""Frozen values that progress, report, JSON and every later view read; nothing reads live counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.masking import masked

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """On how many rows two models gave the same answer, in this run."""

    one: str
    other: str
    rows: int
    """Rows that both have answered."""
    equal: int

    @property
    def share(self) -> float:
        """Share of rows with the same answer."""
        return self.equal / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """What one step of the plan (map_1, run_inference_1, …) did with its rows.

    For steps that neither fan out nor aggregate, `rows_in == rows_out + filtered + failed`.
    """

    name: str
    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    failed: int = 0
    with_error: int = 0
    """Rows that went on with nulls under on_error="null"."""
    retried: int = 0
    """Calls that were made again after one had failed."""
    seconds: float = 0.0
    """Time spent in the step, summed over replicas."""
    fans_out: bool = False
    agreement: tuple[Agreement, ...] = ()
    """Of each pair of models that the step compares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatistics:
    """What one model stage's model did."""

    handler: str
    load_secs: float = 0.0
    loads: int = 0
    calls: int = 0
    """Calls of `run_inference`, further attempts and halves of failed batches included."""
    retried: int = 0
    """Calls that were made again, for the same rows, after one had failed."""
    out_of_memory: int = 0
    """Calls for which memory did not suffice; their rows were asked again in halves."""
    batches: int = 0
    rows: int = 0
    batch_rows_histogram: dict[int, int] = field(default_factory=dict)
    """Batches by size: key is the power of two at or below the number of rows."""
    latency_p50_secs: float = 0.0
    latency_p99_secs: float = 0.0
    target_batch_rows: int = 0
    """The size that the batcher aims at now."""
    mean_batch_weight: float = 0.0
    """Of the batches that the batcher cut: their rows where nothing says what those weigh; padding is counted."""
    padding: float = 0.0
    """Share of the weight of all batches that is padding, as far as rows have lengths."""
    placed_on: str = ""
    """The GPU of each copy, or the device that the model says it is on; empty where nothing says it. A model on the CPU
    that has a GPU says both."""
    device_bytes: int = 0
    """What PyTorch has allocated on GPUs in the processes of the model."""

    @property
    def mean_batch_rows(self) -> float:
        """Mean rows a batch."""
        return self.rows / self.batches if self.batches else 0.0


def merged(copies: Sequence[ModelStatistics]) -> ModelStatistics:
    """Return what the copies of one model did together; they load side by side, and the slowest quantiles stand.

    >>> one, two = (ModelStatistics(handler="H", rows=rows, load_secs=1.0 * rows) for rows in (2, 3))
    >>> merged([one, two]).rows, merged([one, two]).load_secs
    (5, 3.0)
    """
    if len(copies) == 1:
        return copies[0]
    histogram: Counter[int] = Counter()
    for copy in copies:
        histogram.update(copy.batch_rows_histogram)
    return ModelStatistics(
        handler=copies[0].handler,
        load_secs=max(copy.load_secs for copy in copies),
        loads=sum(copy.loads for copy in copies),
        calls=sum(copy.calls for copy in copies),
        retried=sum(copy.retried for copy in copies),
        out_of_memory=sum(copy.out_of_memory for copy in copies),
        batches=sum(copy.batches for copy in copies),
        rows=sum(copy.rows for copy in copies),
        batch_rows_histogram=dict(sorted(histogram.items())),
        latency_p50_secs=max(copy.latency_p50_secs for copy in copies),
        latency_p99_secs=max(copy.latency_p99_secs for copy in copies),
        device_bytes=sum(copy.device_bytes for copy in copies),
        placed_on=", ".join(sorted({copy.placed_on for copy in copies} - {""})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallStatistics:
    """How many rows of a model stage needed no model."""

    recovered: int = 0
    """Rows whose answers an earlier run of the job had kept (durability="row")."""
    hits: int = 0
    """Rows answered by the cache, or together with an equal row."""
    misses: int = 0
    """Rows that were asked of the model, and whose answers went to the cache."""
    cache_bytes: int = 0
    """Bytes in use in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerStatistics:
    """The models of one stage that share a memory budget."""

    budget_bytes: int | None = None
    """None: models stay once they are loaded."""
    nbytes: int = 0
    """What the models in memory take now, as declared or measured."""
    peak_bytes: int = 0
    copies: int = 0
    """Models in memory now."""
    hits: int = 0
    """Batches whose model was there."""
    loads: int = 0
    swaps: int = 0
    """Models that left for others."""
    waits: int = 0
    """Times that somebody had to wait for a model, or for room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """A version of a model that took over while a run went on, or one that was rejected."""

    model_id: str
    """What the column of that name says for its answers; of a rejected one the name alone may be known."""
    rows_before: int = 0
    """How many rows of the stage earlier versions answer, in this run; of a rejected one when it was so."""
    at_secs: float = 0.0
    """Seconds into the run."""
    load_secs: float = 0.0
    """How long it took to load it and to warm it up."""
    warm_up_rows: int = 0
    """Rows, answered before by another version, that it was tried with; 0: there was none yet."""
    drained: bool = False
    """Whether the one before had to leave first, since memory did not suffice for both."""
    rejected: str | None = None
    """Why the one in use goes on; None: it has taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatistics:
    """What became of the versions of a model that is looked after while the run goes on (`watch=`, `updates=`)."""

    model_id: str | None = None
    """The version in use; None: none is loaded yet."""
    switches: int = 0
    """How often a version took over from another."""
    rejected: int = 0
    changes: tuple[ModelChange, ...] = ()
    """The first version and what came after it, in their order; the last thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """A model that is being loaded."""

    model: str
    secs: float
    """For how long by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatistics:
    """How one stage (fused steps that run together) spent its replicas' time.

    busy + starved + blocked is 1 for a stage that ran: working, waiting for input, waiting for room in the output.
    """

    name: str
    replicas: int = 0
    kind: str = "thread"
    steps: tuple[StepStatistics, ...] = ()
    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0
    secs: float = 0.0
    """Seconds that the replicas ran, summed over them; a stage may end long before the run does."""
    queue_fill: float = 0.0
    """Share of the input queue's byte budget in use now."""
    copied: int = 0
    """Rows that went on more than once, since the plan branches behind the stage; each further time counts."""
    restarts: int = 0
    """Worker processes that died, or were killed for a call without end, and were started again."""
    out_of_memory: int = 0
    """Those of them that the kernel killed for want of memory."""
    model: ModelStatistics | None = None
    recall: RecallStatistics | None = None
    loading: tuple[Loading, ...] = ()
    manager: ManagerStatistics | None = None
    updates: UpdateStatistics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatistics:
    """How far one source has been read."""

    name: str
    splits: int = 0
    splits_read: int = 0
    splits_found_finished: int = 0
    """Splits that an earlier run of the job had finished."""
    rows: int = 0
    failed: int = 0
    bytes_total: int = 0
    bytes_read: int = 0
    retried: int = 0
    """Times that reading went on behind a fault of the network."""
    passed_over: int = 0
    """Files that the pattern for this kind of file does not take (notes.txt among pictures)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatistics:
    """What one sink holds. `*_before` says how much of it earlier runs of the job had committed."""

    name: str
    folder: str | None = None
    rows: int = 0
    rows_before: int = 0
    rows_saved: int = 0
    """Rows that no kill can take: those in parts, and those that wait beside them for their part."""
    with_error: int = 0
    parts: int = 0
    nbytes: int = 0
    failed: int = 0
    """Rows that the sink could not take in this run; they are in the dead letters."""
    dead_letters: int = 0
    dead_letters_before: int = 0
    dead_letters_folder: str | None = None

    def __post_init__(self) -> None:
        for name in ("folder", "dead_letters_folder"):
            if (shown := getattr(self, name)) is not None:
                object.__setattr__(self, name, masked(shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInputStatistics:
    """One side input: made before the steps that use it began."""

    name: str
    rows: int = 0
    failed: int = 0
    """Rows that a step of its own set aside."""
    secs: float = 0.0
    """How long it took to read the rows and to build the object."""
    mapped_bytes: int = 0
    """What all processes that use it have in memory once a machine, as far as they look at it."""
    process_bytes: int = 0
    """What each process that uses it has for itself, as it was sent there."""
    rebuilt: str = ""
    """Why it could not be sent, so that each process builds it for itself; empty where it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which a replica of a stage made no progress; the run goes on all the same."""

    stage: str
    replica: int = 0
    doing: str = ""
    """What it did meanwhile, or what it waited for."""
    began_secs: float = 0.0
    """Seconds into the run."""
    secs: float = 0.0
    over: bool = False
    """Whether it has moved on since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """A snapshot of a whole run; taken at any time while it runs and once at its end."""

    elapsed_secs: float = 0.0
    done: bool = False
    peak_memory_bytes: int = 0
    """Of this process and its workers together."""
    memory_limit_bytes: int = 0
    memory_pressure_secs: float = 0.0
    """How long the run took in less because memory was near its limit."""
    sources: tuple[SourceStatistics, ...] = ()
    stages: tuple[StageStatistics, ...] = ()
    sinks: tuple[SinkStatistics, ...] = ()
    stalls: tuple[Stall, ...] = ()
    side_inputs: tuple[SideInputStatistics, ...] = ()
