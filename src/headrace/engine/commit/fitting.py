"""Rows that a sink cannot take among rows that it can: found one by one, so that they fail alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.failing import refused, where
from headrace.errors import SinkError
from headrace.records.alike import without_arrays
from headrace.records.columns import from_column, to_column
from headrace.records.first_rows import HOPELESS_ROWS, FirstRows
from headrace.records.plain import array_of_numbers
from headrace.records.types import TypeQuarrelError, has_objects, unify_schemas, unify_types
from headrace.sinks.columns import mixed, storable_type, widened
from headrace.sinks.sink import ChoosySink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.engine.commit.failures import Failures
    from headrace.records.block import Block
    from headrace.sinks.sink import Sink


class Fitting:
    """Takes out of blocks, in the order of the input, the rows that a sink cannot take. Not thread-safe.

    `stage` is the step that they fail in; without one the first of them ends the run.
    """

    def __init__(
        self, sink: Sink, failures: Failures, *, stage: str | None, hopeless_rows: float = HOPELESS_ROWS
    ) -> None:
        self._sink, self._failures, self._stage = sink, failures, stage
        self._misfits = sink.misfits if isinstance(sink, ChoosySink) else None
        self._first_rows = FirstRows(enough=hopeless_rows)
        self._sound = 0
        self.failed = 0
        """Rows taken out."""

    def fit(self, block: Block, known: pa.Schema | None) -> Block:
        """Return the block without such rows, which become failures; `known` are the types of the rows before.

        Raises:
            SinkError: there is such a row, and it is to end the run.
            TooManyFailuresError: more rows fail than may, or all of the first ones do.
        """
        batch = block.batch
        found = dict(self._misfits(batch)) if self._misfits is not None else {}
        if self._stage is None:
            for row, why in found.items():
                raise SinkError(
                    f"{self._sink.name}: {why} ({where(block, row)}; on_error='dead_letter' sets such rows aside)"
                )
            return block
        fitted = without(batch, found) if found else batch
        if not self._takes(fitted, known):
            quarrels, columns = quarrelling(batch, known, self._sink, without=found)
            found = {**quarrels, **found}
            fitted = without(batch, found, retyped=columns)
        self._sound += fitted.num_rows
        if found:
            return self._taken_out(block, found, fitted, self._stage)
        return block if fitted is batch else block.with_batch(fitted)

    def _takes(self, batch: pa.RecordBatch, known: pa.Schema | None) -> bool:
        try:
            if known is None or not batch.schema.equals(known):
                self._sink.check(wider(known, batch.schema, self._sink))
        except (SinkError, TypeQuarrelError):
            return False
        return True

    def _taken_out(self, block: Block, found: Mapping[int, str], fitted: pa.RecordBatch, stage: str) -> Block:
        failures = [refused(block, row, why, stage=stage) for row, why in sorted(found.items())]
        self.failed += len(failures)
        for failure in failures:
            self._first_rows.failed(SinkError(failure.message))
        if self._first_rows.hopeless(succeeded=self._sound):
            raise self._first_rows.stop(stage)
        self._failures.add(failures, rows=-len(failures))
        self._failures.check()
        return block.derive(fitted, np.delete(np.arange(block.num_rows), list(found)), failures)


def wider(known: pa.Schema | None, new: pa.Schema, sink: Sink) -> pa.Schema:
    """Return the schema that holds rows of both in the sink's files.

    Raises:
        TypeQuarrelError: there is none.
        SinkError: the sink says it better.
    """
    if known is None:
        return unify_schemas([new])
    try:
        return widened(known, new)
    except TypeQuarrelError as error:
        wide = mixed(known, new)
        try:
            sink.check(wide)
        except SinkError:
            if "[]" in error.column:  # arrays of different dimensions
                raise
            raise error from None
        return wide


def quarrelling(
    batch: pa.RecordBatch, known: pa.Schema | None, sink: Sink, *, without: Mapping[int, str]
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Return the rows whose values do not go with the types of the others, those before them first, with the reason.

    With them come the columns that were looked through. Rows of `without` are out already.

    >>> from headrace.sinks.parquet import ParquetSink
    >>> batch = pa.record_batch({"x": ["a", None]})
    >>> found, columns = quarrelling(batch, pa.schema({"x": pa.int64()}), ParquetSink("out"), without={})
    >>> list(found), found[0][:44], columns
    ([0], "column 'x' is string here ('a') and int64 in", ('x',))
    """
    found: dict[int, str] = {}
    columns: list[str] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        index = -1 if known is None else known.get_field_index(name)
        type_ = pa.null() if known is None or index < 0 else storable_type(known.field(index).type)
        if _goes_with(type_, column.type) and _holds(sink, pa.field(name, column.type)):
            continue
        columns.append(name)
        values = from_column(column)
        types = {
            row: storable_type(to_column([without_arrays(value)]).type)
            for row, value in enumerate(values)
            if row not in without and row not in found
        }
        if pa.types.is_null(type_):
            type_ = _commonest(types.values())
        for row, own in types.items():
            try:
                wide = unify_types(type_, own, name)
                if has_objects(wide) and not _holds(sink, pa.field(name, wide)):
                    raise TypeQuarrelError(name, type_, own)
                type_ = wide
            except TypeQuarrelError as quarrel:
                found[row] = _reason(quarrel, values[row])
    return found, tuple(columns)


def without(batch: pa.RecordBatch, rows: Mapping[int, str], *, retyped: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the batch without some rows; columns that had their type for their sake get one of their own.

    >>> without(pa.record_batch({"x": to_column([1, "a"])}), {1: "text"}).schema.field("x").type
    DataType(int64)
    """
    kept = batch.take(array_of_numbers(np.delete(np.arange(batch.num_rows), list(rows))))
    columns = [
        _typed(column) if has_objects(column.type) or name in retyped else column
        for name, column in zip(kept.schema.names, kept.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _commonest(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type of most values, so that one odd row in front does not make all others odd."""
    counts = Counter(type_ for type_ in types if not pa.types.is_null(type_) and not has_objects(type_))
    return counts.most_common(1)[0][0] if counts else pa.null()


def _goes_with(known: pa.DataType, own: pa.DataType) -> bool:
    try:
        unify_types(known, storable_type(own))
    except TypeQuarrelError:
        return False
    return True


def _holds(sink: Sink, field: pa.Field) -> bool:
    try:
        sink.check(pa.schema([field]))
    except SinkError:
        return False
    return True


def _typed(column: pa.Array) -> pa.Array:
    return to_column([without_arrays(value) for value in from_column(column)])


def _reason(quarrel: TypeQuarrelError, value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 100 else shown[:100] + "…"
    return (
        f"column {quarrel.column!r} is {quarrel.right} here ({shown}) and {quarrel.left} in other rows; make the step"
        " that writes it answer one type, or pass dtypes= where it is read"
    )
