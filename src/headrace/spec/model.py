"""The shape of pipeline.yaml: what keys there are, of what kind, within what bounds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from headrace.errors import HeadraceError
from headrace.spec.fields import (
    AboveZero,
    Bytes,
    Function,
    Functions,
    GpuBytes,
    Handler,
    NotNegative,
    OnError,
    Positive,
    Texts,
)
from headrace.spec.sinks import CsvSink, JsonSink, ParquetSink, Sink
from headrace.spec.sources import Source
from headrace.spec.spec_model import SpecModel


def _as_folder(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class CacheSpec(SpecModel):
    """Answers kept for equal inputs."""

    path: str = Field(min_length=1, description="folder on a local disk")
    max_bytes: Bytes | None = None


Cache: TypeAlias = Annotated[CacheSpec, BeforeValidator(_as_folder, json_schema_input_type=str | CacheSpec)]
"""A folder, or a mapping."""


def _as_pattern(value: Any) -> Any:
    return {"pattern": value} if isinstance(value, str) else value


class WatchSpec(SpecModel):
    """Files or folders of which the newest is the model."""

    pattern: str = Field(min_length=1, description="path or URL with wildcards")
    interval_secs: AboveZero | None = None


Watch: TypeAlias = Annotated[WatchSpec, BeforeValidator(_as_pattern, json_schema_input_type=str | WatchSpec)]
"""A pattern, or a mapping."""


def _as_budget(value: Any) -> Any:
    if value == "auto":
        return {"gpu": value}
    return {"cpu": value} if isinstance(value, (str, int)) else value


class BudgetSpec(SpecModel):
    """Memory of models that take turns."""

    cpu: Bytes | None = Field(None, description="of the machine's memory; by default half of the run's limit")
    gpu: GpuBytes | None = Field(
        None, description="auto, bytes of each GPU, or a mapping from GPUs, by index or UUID in quotes, to bytes"
    )


Budget: TypeAlias = Annotated[
    BudgetSpec, BeforeValidator(_as_budget, json_schema_input_type=Literal["auto"] | Bytes | BudgetSpec)
]
"""Auto, bytes of the machine's memory, or a mapping."""


class RetrySpec(SpecModel):
    """Calls made again where they fail."""

    attempts: Positive | None = None
    backoff_secs: NotNegative | None = None
    max_backoff_secs: NotNegative | None = None
    on: Texts | None = Field(None, description="names of exceptions, such as ConnectionError or requests.Timeout")


def _by_argument(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    return {name: name for name in names} if isinstance(names, list) and all(map(_is_text, names)) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


SidesUsed: TypeAlias = Annotated[
    dict[str, str],
    BeforeValidator(_by_argument, json_schema_input_type=str | list[str] | dict[str, str]),
    Field(description="names of side inputs, or a mapping from arguments to them"),
]


class InferStep(SpecModel):
    """A model over the rows."""

    handler: Handler | None = Field(
        None,
        description="kind:path (sklearn:model.pkl, onnx:model.onnx, …) or module:HandlerClass; with key:, a path with "
        "{key} in it",
    )
    models: Annotated[dict[str, Handler], Field(min_length=1)] | None = Field(
        None, description="several models in place of handler:, by name"
    )
    key: str | None = Field(None, description="what names the model of each row: a column, or module:function")
    mode: Literal["route", "all"] | None = Field(None, description="all: every model answers every row")
    labelled: bool | None = None
    args: dict[str, Any] = Field(default_factory=dict, description="options of the handler")
    inputs: str | list[str] | dict[str, str | list[str]] | None = None
    output: str | dict[str, str] = "prediction"
    model_id_column: str | None = "model_id"
    inference_args: dict[str, Any] | None = None
    side_inputs: SidesUsed | None = None
    preprocess: Functions | None = None
    postprocess: Functions | None = None
    batch_size: Positive | None = None
    min_batch_size: Positive | None = None
    max_batch_size: Positive | None = None
    max_batch_duration_secs: NotNegative | None = None
    max_batch_weight: AboveZero | None = None
    length_fn: str | None = Field(None, description="a column, or module:function")
    weight_fn: str | None = Field(None, description="a column, or module:function")
    sort_window_rows: Positive | None = None
    target_latency_secs: AboveZero | None = None
    concurrency: Positive | None = None
    isolation: Literal["auto", "thread", "process"] | None = None
    num_gpus: NotNegative | None = None
    accelerator: str | None = None
    min_ram: Bytes | None = None
    model_copies: Positive | None = None
    large_model: bool | None = None
    idle_timeout_secs: AboveZero | None = None
    durability: Literal["range", "row"] | None = None
    cache: Cache | None = None
    memory_budget: Budget | None = Field(None, description="auto, bytes of the machine's memory, or cpu and gpu")
    watch: Watch | None = None
    on_error: OnError | None = None
    retry: RetrySpec | None = None
    timeout_secs: AboveZero | None = None
    version: str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _sizes_agree(self) -> InferStep:
        if self.batch_size and (self.min_batch_size or self.max_batch_size):
            raise ValueError("batch_size fixes the size; leave out either it or min_batch_size and max_batch_size")
        if self.min_batch_size and self.max_batch_size and self.min_batch_size > self.max_batch_size:
            raise ValueError(
                f"min_batch_size ({self.min_batch_size}) must not be above max_batch_size ({self.max_batch_size})"
            )
        return self

    @model_validator(mode="after")
    def _handler_works(self) -> InferStep:
        from headrace.model.checks import run_check
        from headrace.spec.keyed import make_step_handler

        try:
            run_check(make_step_handler(self))
        except HeadraceError as error:
            raise ValueError(str(error)) from error
        return self


class ReplicatedStep(SpecModel):
    """What steps share that run a function of the user's."""

    function: Function
    side_inputs: SidesUsed | None = None
    concurrency: Positive | None = None
    isolation: Literal["auto", "thread", "process"] | None = None
    on_error: OnError | None = None
    retry: RetrySpec | None = None
    timeout_secs: AboveZero | None = None
    version: str | None = None
    name: str | None = None


class FunctionStep(ReplicatedStep):
    """A function over rows."""

    args: dict[str, Any] = Field(default_factory=dict, description="arguments of the class's constructor")


class MapBatchesStep(FunctionStep):
    """A function over batches of rows."""

    batch_format: Literal["numpy", "pyarrow", "pandas", "rows"] | None = None
    batch_size: Positive | None = None
    row_wise: bool | None = None


class AddColumnStep(ReplicatedStep):
    """A column worked out from each row."""

    column: str


class ApplyStep(SpecModel):
    """A function from Dataset to Dataset."""

    function: Function
    args: dict[str, Any] = Field(default_factory=dict, description="further arguments of the function")


class SearchStep(SpecModel):
    """The nearest neighbors of each row's vector in an index."""

    index: str = Field(description="a side input with index:")
    column: str
    k: Positive | None = None
    output: str | None = None
    distances: str | None = None
    batch_size: Positive | None = None
    concurrency: Positive | None = None
    isolation: Literal["auto", "thread", "process"] | None = None
    on_error: OnError | None = None
    name: str | None = None

    null_means: ClassVar[frozenset[str]] = frozenset({"distances"})


class ShuffleStep(SpecModel):
    """Rows in random order."""

    seed: int
    buffer_rows: Annotated[int, Field(ge=2)] | None = None
    files: bool | None = None


class ReshuffleStep(SpecModel):
    """A break between stages; it takes nothing but a name."""

    name: str | None = None


class Step(SpecModel):
    """One step: a mapping with one key, the step's kind."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    infer: InferStep | None = None
    map: FunctionStep | None = None
    map_batches: MapBatchesStep | None = None
    filter: FunctionStep | None = None
    flat_map: FunctionStep | None = None
    add_column: AddColumnStep | None = None
    select: Texts | None = None
    drop: Texts | None = None
    rename: dict[str, str] | None = None
    limit: Annotated[int, Field(ge=0)] | None = None
    random_shuffle: ShuffleStep | None = None
    reshuffle: ReshuffleStep | None = None
    search: SearchStep | None = None
    apply: ApplyStep | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Step:
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        if len(given) != 1:
            found = f"this one has {' and '.join(given)}" if given else "this one has none"
            raise ValueError(f"a step has one key, its kind; {found}")
        if self.value is None:
            raise ValueError(f"{given[0]} is empty; say what it should do")
        return self

    @property
    def kind(self) -> str:
        """The step's one key."""
        return next(iter(self.model_fields_set))

    @property
    def value(self) -> Any:
        """What stands under the step's key."""
        return getattr(self, self.kind)


class IndexSpec(SpecModel):
    """An index of a column of vectors."""

    column: str
    key: str | None = None
    metric: Literal["cosine", "l2", "inner_product"] | None = None
    kind: Literal["flat", "faiss"] | None = None
    factory: str | None = None
    parameters: str | None = None
    train_rows: Positive | None = None


class SideInputSpec(SpecModel):
    """Rows that are whole before the steps begin that use them, and perhaps made into something."""

    source: Source
    steps: list[Step] = Field(default_factory=list)
    build: Function | None = Field(None, description="module:function, from an Arrow table to what the steps get")
    index: IndexSpec | None = Field(None, description="in place of build: an index for search steps")
    version: str | None = None

    @model_validator(mode="after")
    def _made_in_one_way(self) -> SideInputSpec:
        if self.index is not None and (self.build is not None or self.version is not None):
            raise ValueError("index: makes the object by itself; leave build: and version: out")
        return self


class DeadLetters(SpecModel):
    """Where failed rows go."""

    path: Annotated[str, Field(min_length=1, description="folder")] | None = None
    format: Literal["json", "parquet"] | None = None


class Run(SpecModel):
    """How the whole is run."""

    on_error: OnError | None = None
    max_failed_rows: Annotated[int, Field(ge=0)] | None = None
    max_failed_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    on_change: Literal["fail", "restart", "continue_new_input"] | None = None
    num_cpus: Positive | None = None
    memory_limit: Bytes | None = None
    disk_limit: Bytes | None = None
    stall_warning_secs: AboveZero | None = None
    max_outage_secs: NotNegative | None = None


class PipelineSpec(SpecModel):
    """A pipeline: one source, steps in their order, one sink or several."""

    side_inputs: dict[str, SideInputSpec] = Field(
        default_factory=dict, description="by name; each may use earlier ones"
    )
    source: Source
    steps: list[Step] = Field(default_factory=list)
    sink: Sink | None = None
    sinks: Annotated[list[Sink], Field(min_length=1)] | None = None
    dead_letters: DeadLetters | None = None
    run: Run = Run()

    @model_validator(mode="after")
    def _dead_letters_are_used(self) -> PipelineSpec:
        modes = [step.value.on_error for step in self.steps if hasattr(step.value, "on_error")]
        if self.dead_letters and self.run.on_error not in (None, "dead_letter") and "dead_letter" not in modes:
            raise ValueError(
                f"dead_letters would stay empty, since run.on_error is {self.run.on_error!r}; make it 'dead_letter'"
            )
        return self

    @property
    def all_sinks(self) -> list[CsvSink | JsonSink | ParquetSink]:
        """The sinks, however they are given."""
        return self.sinks if self.sinks is not None else [self.sink] if self.sink is not None else []

    @property
    def on_error(self) -> OnError | None:
        """What happens to rows that fail: naming a place for dead letters asks for them."""
        return self.run.on_error or ("dead_letter" if self.dead_letters else None)
