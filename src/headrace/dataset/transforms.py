"""Lazy transforms: each returns a new dataset over one more node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from headrace.dataset.batch_limits import batch_limits
from headrace.dataset.function_step import function_step
from headrace.dataset.model_updates import updates_of
from headrace.dataset.scope import composite, step_name
from headrace.dataset.side_by_side import infer
from headrace.errors import PlanError
from headrace.plan.columns import Drop, Rename, Select
from headrace.plan.nodes import Limit, MapBatches, Node, Read, Reshuffle, Shuffle, Union
from headrace.plan.numbers import whole_number
from headrace.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from headrace.dataset.side_input import SideInput
    from headrace.model.cache import PredictionCache
    from headrace.model.handler import ModelHandler
    from headrace.model.keyed import MemoryBudget
    from headrace.model.updates import ModelMetadata, WatchFilePattern
    from headrace.plan.retry import Retry
    from headrace.plan.steps import BatchFormat, Durability, Isolation, OnError


class Transforms:
    """The part of `Dataset` that makes new datasets."""

    def __init__(self, node: Node) -> None:
        self.node = node

    # -- rows ------------------------------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[..., Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        side_inputs: Mapping[str, SideInput] | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        output_schema: pa.Schema | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each row (a dict) by the row that `function` returns.

        A class is made once a replica with `args` and `kwargs`, with `setup()` and `close()` where it has them.
        `isolation="auto"` starts in a thread and adds worker processes when the step proves heavy, so do not share
        state through globals. `retry=` (see `Retry`) calls again where the function fails. A row for which the function
        takes longer than `timeout_secs` fails; since that takes a process that can be killed, "auto" is "process" then,
        and with "thread" the run ends. `version=` stands for the function's content when a job is resumed. Each of
        `side_inputs` (see `broadcast`) is passed to the function as the argument of that name.

        >>> import headrace as hr
        >>> hr.from_items([{"a": 1}, {"a": 2}]).map(lambda r: {"b": r["a"] * 10}).take(2)
        [{'b': 10}, {'b': 20}]
        """
        step = function_step(
            "map",
            function,
            args,
            kwargs,
            on_error,
            output_schema,
            version,
            name,
            retry=retry,
            timeout_secs=timeout_secs,
            side_inputs=side_inputs,
        )
        return self._with_step(step, concurrency, isolation)

    def flat_map(
        self,
        function: Callable[..., Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        side_inputs: Mapping[str, SideInput] | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        output_schema: pa.Schema | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each row by any number of rows; `function` returns or yields dicts. See `map` for the options.

        >>> import headrace as hr
        >>> hr.from_items([{"n": 2}, {"n": 0}]).flat_map(lambda r: ({"i": i} for i in range(r["n"]))).take(5)
        [{'i': 0}, {'i': 1}]
        """
        step = function_step(
            "flat_map",
            function,
            args,
            kwargs,
            on_error,
            output_schema,
            version,
            name,
            retry=retry,
            timeout_secs=timeout_secs,
            side_inputs=side_inputs,
        )
        return self._with_step(step, concurrency, isolation)

    def filter(
        self,
        function: Callable[..., Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        side_inputs: Mapping[str, SideInput] | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Keep the rows for which `function` returns true. See `map` for the options.

        >>> import headrace as hr
        >>> hr.range(5).filter(lambda r: r["id"] > 2).take(5)
        [{'id': 3}, {'id': 4}]
        """
        step = function_step(
            "filter",
            function,
            args,
            kwargs,
            on_error,
            None,
            version,
            name,
            retry=retry,
            timeout_secs=timeout_secs,
            side_inputs=side_inputs,
        )
        return self._with_step(step, concurrency, isolation)

    def map_batches(
        self,
        function: Callable[..., Any],
        *,
        batch_format: BatchFormat = "numpy",
        batch_size: int | None = None,
        row_wise: bool = False,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        side_inputs: Mapping[str, SideInput] | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        output_schema: pa.Schema | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each batch of rows by the batch that `function` returns.

        Batches hold at most `batch_size` rows (None: blocks as they come, 1–32 MB) and never rows of two splits.
        `batch_format` is "numpy" (dict of arrays), "pyarrow" (RecordBatch), "pandas" (DataFrame) or "rows" (list of
        dicts). Say `row_wise=True` if the function answers row by row: then a failing batch is halved until the bad
        rows are found. `timeout_secs` is for one batch. See `map` for the other options.

        >>> import headrace as hr
        >>> hr.range(3).map_batches(lambda b: {"double": b["id"] * 2}).take(3)
        [{'double': 0}, {'double': 2}, {'double': 4}]
        """
        if batch_format not in ("numpy", "pyarrow", "pandas", "rows"):
            raise PlanError(f"batch_format is {batch_format!r}; use 'numpy', 'pyarrow', 'pandas' or 'rows'")
        batch_size = whole_number("batch_size", batch_size, optional=True)
        step = function_step(
            "map_batches",
            function,
            args,
            kwargs,
            on_error,
            output_schema,
            version,
            name,
            batch_format=batch_format,
            batch_size=batch_size,
            row_wise=row_wise,
            retry=retry,
            timeout_secs=timeout_secs,
            side_inputs=side_inputs,
        )
        return self._with_step(step, concurrency, isolation)

    # -- columns ---------------------------------------------------------------------------------------------------

    def add_column(
        self,
        column: str,
        function: Callable[..., Any],
        *,
        side_inputs: Mapping[str, SideInput] | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Add a column (or replace it) with the value that `function` returns for each row.

        >>> import headrace as hr
        >>> hr.range(2).add_column("next", lambda r: r["id"] + 1).take(2)
        [{'id': 0, 'next': 1}, {'id': 1, 'next': 2}]
        """
        step = function_step(
            "add_column",
            function,
            (),
            {"column": column},
            on_error,
            None,
            version,
            name,
            retry=retry,
            timeout_secs=timeout_secs,
            side_inputs=side_inputs,
        )
        return self._with_step(step, concurrency, isolation)

    def select(self, *columns: str, name: str | None = None) -> Self:
        """Keep these columns, in this order.

        >>> import headrace as hr
        >>> hr.from_items([{"a": 1, "b": 2}]).select("b").take(1)
        [{'b': 2}]
        """
        return self._columns("select", Select(_names(columns)), name)

    def drop(self, *columns: str, name: str | None = None) -> Self:
        """Leave these columns out."""
        return self._columns("drop", Drop(_names(columns)), name)

    def rename(self, columns: Mapping[str, str], *, name: str | None = None) -> Self:
        """Give columns new names, as in `{"old": "new"}`."""
        return self._columns("rename", Rename(tuple(columns.items())), name)

    # -- models ----------------------------------------------------------------------------------------------------

    def run_inference(
        self,
        handler: ModelHandler[Any],
        *,
        inputs: str | Sequence[str] | Mapping[str, Any] | None = None,
        output: str | Mapping[str, str] = "prediction",
        model_id_column: str | None = "model_id",
        inference_args: Mapping[str, Any] | None = None,
        side_inputs: Mapping[str, SideInput] | None = None,
        preprocess: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        postprocess: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        batch_size: int | None = None,
        min_batch_size: int | None = None,
        max_batch_size: int | None = None,
        max_batch_duration_secs: float | None = None,
        max_batch_weight: float | None = None,
        length_fn: str | Callable[[Any], float] | None = None,
        weight_fn: str | Callable[[Any], float] | None = None,
        sort_window_rows: int = 4096,
        target_latency_secs: float | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        retry: Retry | None = None,
        timeout_secs: float | None = None,
        num_gpus: float | None = None,
        accelerator: str | None = None,
        min_ram: str | None = None,
        model_copies: int | None = None,
        large_model: bool = False,
        idle_timeout_secs: float | None = None,
        durability: Durability = "range",
        cache: PredictionCache | None = None,
        memory_budget: MemoryBudget | Literal["auto"] | None = None,
        watch: WatchFilePattern | str | None = None,
        updates: Iterable[ModelMetadata] | Transforms | None = None,
        version: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Run a model over the rows; all columns are kept and the answer lands in `output`.

        Args:
            handler: loads the model and answers batches; a `KeyedModelHandler` for several models.
            inputs: what the handler sees: None is a list of row dicts (or the handler's own columns), a name is an
                array of that column, several names a matrix, a mapping a dict of arrays.
            output: the answer's column, or a mapping from keys of dict answers to columns.
            model_id_column: column that says which model answered; None leaves it out.
            inference_args: passed to the handler's `run_inference`.
            side_inputs: what they stand for is passed there too, among `inference_args`, by the same names; or, in
                place of that, to those of the functions here that have a parameter of that name.
            preprocess: function(s) from row to what the handler gets for it, run on CPUs beside the model; the handler
                then sees a list (or array) of what they return.
            postprocess: function(s) from answer to answer.
            batch_size: exactly this many rows a batch (the last may be smaller); otherwise the size is found, within
                `min_batch_size` and `max_batch_size`.
            max_batch_duration_secs: how long the first row of a batch may wait for others.
            min_batch_size: fewest rows a batch, where there are as many.
            max_batch_size: most rows a batch.
            max_batch_weight: most weight a batch; a row that is heavier goes alone.
            length_fn: how long a row is, where batches are padded to their longest row: then rows of like length go
                together, and a batch weighs its rows × the longest. The name of a column (numbers, or text, bytes and
                lists by their length), or a function of what the model gets of a row. None: as the handler says.
            weight_fn: how heavy a row is, in the same way, where weights add up.
            sort_window_rows: among how many rows those of like length, or of one model, are sought; order is kept.
            target_latency_secs: how long a row should take through this step, the wait for its batch included; without
                it all is for throughput.
            concurrency: batches in flight; None is one, or one a core for models that are computed on CPUs and bear it.
            isolation: with "thread" they share one model in this process; with "process" each worker process loads
                its own, and a crash costs the rows that cause it. "auto" is "process" where `timeout_secs` is given.
            on_error: as in `run`, for this step.
            retry: asks the model again where it fails: a batch before it is halved, and a row alone; see `Retry`.
            timeout_secs: how long the model may take for a batch; a process that takes longer is killed and started
                again, and the batch halved until the rows that hang stand alone.
            num_gpus: GPUs of each copy of the model, which has a process that sees no others: whole ones, or a part
                of one (0.5) where models share it; 0: none. There is a copy for each GPU that is free, or as many as
                `model_copies` says. Where the machine has fewer the run is refused.
            accelerator: the kind of GPU that it has to be, such as "nvidia-l4"; one, unless `num_gpus` says more.
            min_ram: memory that each copy needs, which is kept from rows; refused where the run has less.
            model_copies: so many copies of the model for all batches in flight together, in this process or, with
                isolation="process", in as many of their own.
            large_model: one copy (or `model_copies`) in a process of its own, whatever the `concurrency`; steps that
                ask the same model in the same way share it.
            idle_timeout_secs: a model that has had no batch for so long leaves memory until it is needed.
            durability: with "row" each answer is on the disk once it is made, for rows that cost seconds or money;
                beside an output in a store within a moment.
            cache: where answers to equal inputs are kept, so that they are computed once; see `PredictionCache`.
            memory_budget: what the models of a `KeyedModelHandler` may take together; they take turns within it. With
                `watch=` or `updates=`: the old version and the new one.
            watch: a pattern of which the newest match is the model, also while the run goes on; `handler` says how it
                is loaded, and what to begin with where nothing matches. See `WatchFilePattern`.
            updates: announcements of versions (`ModelMetadata`), in place of a pattern: an iterable, which may wait for
                each, or a dataset with the columns `model_id` and `model_name`.
            version: stands for handler and model content when a job is resumed.
            name: the step's name in plans, reports and messages.

        >>> import headrace as hr
        >>> from headrace.handlers.function import FunctionModelHandler
        >>> double = FunctionModelHandler(lambda batch: [x * 2 for x in batch])
        >>> hr.range(2).run_inference(double, inputs="id", model_id_column=None).take(2)
        [{'id': 0, 'prediction': 0}, {'id': 1, 'prediction': 2}]
        """
        limits = batch_limits(
            batch_size=batch_size,
            min_batch_size=min_batch_size,
            max_batch_size=max_batch_size,
            max_batch_duration_secs=max_batch_duration_secs,
            max_batch_weight=max_batch_weight,
            length_fn=length_fn,
            weight_fn=weight_fn,
            sort_window_rows=sort_window_rows,
            target_latency_secs=target_latency_secs,
        )
        node = infer(
            self.node,
            handler,
            inputs=inputs,
            output=output,
            model_id_column=model_id_column,
            inference_args=inference_args or {},
            side_inputs=side_inputs,
            preprocess=preprocess,
            postprocess=postprocess,
            limits=limits,
            weigh=next((fn for fn in (length_fn, weight_fn) if callable(fn)), None),
            concurrency=concurrency,
            isolation=isolation,
            on_error=on_error,
            retry=retry,
            timeout_secs=timeout_secs,
            hints={"num_gpus": num_gpus, "accelerator": accelerator, "min_ram": min_ram},
            durability=durability,
            cache=cache,
            version=version,
            name=name,
            memory_budget=memory_budget,
            model_copies=model_copies,
            large_model=large_model,
            idle_timeout_secs=idle_timeout_secs,
            updates=updates_of(handler, watch, updates),
        )
        return self._with(node)

    # -- the whole -------------------------------------------------------------------------------------------------

    def limit(self, rows: int, *, name: str | None = None) -> Self:
        """Keep the first rows, in the order of the input."""
        rows = whole_number("limit", rows, least=0)
        return self._with(Limit(name=step_name(name, "limit"), upstream=self.node, rows=rows))

    def random_shuffle(
        self, *, seed: int = 0, buffer_rows: int | None = 100_000, files: bool = True, name: str | None = None
    ) -> Self:
        """Put the rows in random order, within bounded memory; the same seed gives the same order.

        The splits of the input are read in random order where the dataset is a source still (`files=True`), and rows
        are drawn from a buffer of `buffer_rows` (None: files only).
        """
        node = self.node
        if files and isinstance(node, Read):
            node = Read(name=node.name, source=node.source, columns=node.columns, shuffle_seed=seed)
        elif buffer_rows is None:
            raise PlanError("random_shuffle(buffer_rows=None) shuffles files, so it has to follow read_* directly")
        if buffer_rows is None:
            return self._with(node)
        buffer_rows = whole_number("buffer_rows", buffer_rows, least=2)
        shuffle = Shuffle(name=step_name(name, "random_shuffle"), upstream=node, seed=seed, buffer_rows=buffer_rows)
        return self._with(shuffle)

    def reshuffle(self, *, name: str | None = None) -> Self:
        """Break fusion: the steps before and after run in stages of their own."""
        return self._with(Reshuffle(name=step_name(name, "reshuffle"), upstream=self.node))

    def union(self, *others: Transforms, name: str | None = None) -> Self:
        """Add the rows of other datasets behind these; their columns are united, null where one has none.

        Rows of one source that come in by several ways stay together, split by split, so that none has to wait for all.
        """
        nodes = (self.node, *(other.node for other in others))
        return self._with(Union(name=step_name(name, "union"), upstreams=nodes))

    def split(self, branches: Mapping[str, Callable[[dict[str, Any]], bool]]) -> dict[str, Self]:
        """Make named branches, each with the rows for which its function returns true.

        A row may go into several branches, or into none. What is before the split is computed once when the branches'
        jobs run together: `hr.run(job_a, job_b)`.

        >>> import headrace as hr
        >>> parts = hr.range(4).split({"low": lambda r: r["id"] < 1, "high": lambda r: r["id"] >= 1})
        >>> parts["high"].count()
        3
        """
        return {name: self.filter(function, name=name) for name, function in branches.items()}

    def apply(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply a composite step: a plain function from dataset to dataset, whose name its steps will carry.

        >>> import headrace as hr
        >>> def clean(ds):
        ...     return ds.filter(lambda r: r["id"] > 0).limit(1)
        >>> hr.range(9).apply(clean).take(5)
        [{'id': 1}]
        """
        with composite(getattr(function, "__name__", type(function).__name__)):
            result = function(self, *args, **kwargs)
        if not isinstance(result, Transforms) and not isinstance(result, dict):
            raise PlanError(
                f"apply() expects {getattr(function, '__name__', 'the function')} to return a Dataset, "
                f"it returned {type(result).__name__}"
            )
        return result

    def _columns(self, kind: str, function: Select | Drop | Rename, name: str | None) -> Self:
        step = Step(name=step_name(name, kind), kind="columns", function=function)
        return self._with(MapBatches(upstream=self.node, step=step))

    def _with_step(self, step: Step, concurrency: int | None, isolation: Isolation) -> Self:
        if isolation not in ("auto", "thread", "process"):
            raise PlanError(f"isolation is {isolation!r}; use 'auto', 'thread' or 'process'")
        concurrency = whole_number("concurrency", concurrency, of="replicas", optional=True)
        if isolation == "auto" and step.timeout_secs is not None:
            isolation = "process"  # a thread that hangs cannot be ended
        return self._with(MapBatches(upstream=self.node, step=step, concurrency=concurrency, isolation=isolation))

    def _with(self, node: Node) -> Self:
        return type(self)(node)


def _names(columns: tuple[Any, ...]) -> tuple[str, ...]:
    """Take names one by one or as one list."""
    if len(columns) == 1 and isinstance(columns[0], (list, tuple)):
        columns = tuple(columns[0])
    for column in columns:
        if not isinstance(column, str):
            raise PlanError(f"columns are named by text, not by {type(column).__name__} ({column!r})")
    return columns
