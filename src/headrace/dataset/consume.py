"""Running a dataset for the caller: rows, batches, tables, counts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.dataset.iteration import Iteration
from headrace.dataset.job import explained
from headrace.dataset.transforms import Transforms
from headrace.errors import RunError
from headrace.plan.graph import Plan
from headrace.plan.nodes import Collect, Limit
from headrace.plan.numbers import whole_number
from headrace.plan.schemas import columns_after
from headrace.records.columns import joined, to_rows
from headrace.records.types import TypeQuarrelError, conform, unify_schemas

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from headrace.metrics.statistics import RunStatistics
    from headrace.plan.steps import BatchFormat


class Consumption(Transforms):
    """The part of `Dataset` that runs at once, embedded, in the order of the input."""

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the first rows as dicts. Runs the pipeline as far as needed.

        >>> import headrace as hr
        >>> hr.from_items([{"a": 1}, {"a": 2}, {"a": 3}]).take(2)
        [{'a': 1}, {'a': 2}]
        """
        limited = Limit(name="take", upstream=self.node, rows=whole_number("take", limit, least=0))
        return [row for batch in self._batches(limited) for row in to_rows(batch)]

    def count(self) -> int:
        """Return the number of rows. Runs the pipeline.

        >>> import headrace as hr
        >>> hr.range(1000).filter(lambda r: r["id"] % 2 == 0).count()
        500
        """
        return sum(batch.num_rows for batch in self._batches(self.node))

    def iter_rows(self, *, state: Mapping[str, Any] | None = None) -> Iteration[dict[str, Any]]:
        """Iterate over rows as dicts, running the pipeline as the caller pulls; leaving early stops it.

        `.state()` of the iteration, given as `state=` to the same pipeline, goes on behind the last row handed out.
        """
        return Iteration(self._collect(), _rows, state=state)

    def iter_batches(
        self,
        *,
        batch_size: int | None = 256,
        batch_format: BatchFormat = "numpy",
        state: Mapping[str, Any] | None = None,
    ) -> Iteration[Any]:
        """Iterate over batches of exactly `batch_size` rows (the last may be smaller; None: blocks as they come).

        `.state()` of the iteration, given as `state=` to the same pipeline, goes on behind the last row handed out; see
        `Iteration`.

        >>> import headrace as hr
        >>> [len(b["id"]) for b in hr.range(5).iter_batches(batch_size=2)]
        [2, 2, 1]
        """
        batch_size = whole_number("batch_size", batch_size, optional=True)
        return Iteration(self._collect(), partial(_user_batches, size=batch_size, form=batch_format), state=state)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table; they have to fit in memory.

        >>> import headrace as hr
        >>> hr.range(3).to_arrow().num_rows
        3
        """
        return _table(list(self._batches(self.node, empty=True)), self.node)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame; they have to fit in memory."""
        from headrace.engine.user_batches import to_pandas

        return to_pandas(self.to_arrow())

    def materialize(self) -> Any:
        """Run the pipeline now and return a dataset over the rows, kept in memory."""
        from headrace.sources.memory import MemorySource

        return type(self)(_read_of(MemorySource(table=self.to_arrow(), name="materialized")))

    def schema(self) -> pa.Schema:
        """Return the columns and types. Reads samples only where they are known before a run, else the first rows."""
        known = columns_after(self._collect())[id(self.node)]
        if known is not None and all(type_ is not None for type_ in known.values()):
            return pa.schema(list(known.items()))
        limited = Limit(name="take", upstream=self.node, rows=1)
        return _table(list(self._batches(limited, empty=True)), limited).schema

    def explain(self, format: str = "text", *, num_cpus: int | None = None) -> str:
        """Describe what would run, as "text" or "json": steps, the schema after each, stages. Reads samples only."""
        return explained(self._collect(), format=format, num_cpus=num_cpus)

    def stats(self) -> RunStatistics:
        """Run the pipeline, drop the rows, and return what the run did: rows, time, batches by step."""
        from headrace.runners import local

        return local.drain(self._collect())

    def _collect(self) -> Plan:
        return Plan([Collect(name="collect", upstream=self.node)])

    def _batches(self, node: Any, *, empty: bool = False) -> Iterator[pa.RecordBatch]:
        from headrace.runners import local

        for block in local.blocks(Plan([Collect(name="collect", upstream=node)])):
            if block.num_rows or empty:
                yield block.batch


def _read_of(source: Any) -> Any:
    from headrace.dataset.scope import step_name
    from headrace.plan.nodes import Read

    return Read(name=step_name(None, "materialized"), source=source)


def _table(batches: list[pa.RecordBatch], node: Any) -> pa.Table:
    try:
        schema = unify_schemas([batch.schema for batch in batches if batch.schema.names])
        if not schema.names:
            known = columns_after(Plan([Collect(name="collect", upstream=node)]))[id(node)] or {}
            schema = pa.schema([(name, type_ or pa.null()) for name, type_ in known.items()])
        whole = [conform(batch, schema) for batch in batches if batch.num_rows]
    except TypeQuarrelError as error:
        raise RunError(
            f"a table has one type a column, and {error}; make the step that writes it answer one type, or take the"
            " rows with iter_rows()"
        ) from error
    return pa.Table.from_batches(whole, schema=schema)


def _rows(batches: Iterator[pa.RecordBatch]) -> Generator[tuple[dict[str, Any], int], None, None]:
    for batch in batches:
        for row in to_rows(batch):
            yield row, 1


def _user_batches(
    batches: Iterator[pa.RecordBatch], *, size: int | None, form: BatchFormat
) -> Generator[tuple[Any, int], None, None]:
    from headrace.engine.user_batches import to_user

    for batch in _recut(batches, size):
        yield to_user(batch, form), batch.num_rows


def _recut(batches: Iterator[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    if size is None:
        yield from batches
        return
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= size:
            whole = joined(waiting)
            yield whole.slice(0, size)
            rest = whole.slice(size)
            waiting, rows = ([rest] if rest.num_rows else []), rest.num_rows
    if rows:
        yield joined(waiting)
