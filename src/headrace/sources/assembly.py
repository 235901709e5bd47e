"""From parsed columns to a block: failed rows taken out, missing and added columns put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError
from headrace.masking import masked
from headrace.records.block import Block, Unit
from headrace.records.columns import empty_columns
from headrace.records.failure import RowFailure, row_as_json
from headrace.records.plain import array_of_numbers
from headrace.sources.partitions import constant_column, partition_schema, partition_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.records.block import Origin
    from headrace.sources.source import Split


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a row cannot be read, and the row as far as it can be shown."""

    message: str
    row: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Columns that do not come from the file but from its path."""

    include_path: str | None = None
    """Name of the column for the file's path."""
    partitioning: Literal["hive"] | None = None

    def extend(self, schema: pa.Schema, paths: Iterable[str]) -> pa.Schema:
        """Return the schema with the added columns; a file's own column goes before a partition of the same name."""
        if self.partitioning == "hive":
            for field in partition_schema(paths):
                if field.name not in schema.names:
                    schema = schema.append(field)
        if self.include_path is not None:
            if self.include_path in schema.names:
                raise PlanError(
                    f"include_path={self.include_path!r}: the files have such a column; choose another name"
                )
            schema = schema.append(pa.field(self.include_path, pa.string()))
        return schema

    def values(self, path: str) -> dict[str, str | None]:
        """Return what the added columns hold in the rows of a file."""
        values = partition_values(path) if self.partitioning == "hive" else {}
        return values if self.include_path is None else {**values, self.include_path: masked(path)}

    def salt(self, split: Split) -> str:
        """Return what a split's rows owe to paths, for its fingerprint."""
        values = [self.values(extent.path) for extent in split.detail.extents]
        return repr(values) if any(values) else ""


NOTHING_ADDED = Added()


class Following:
    """Blocks that follow one another, and the ordinal behind the last one so far; none of them is kept."""

    def __init__(self, blocks: Iterator[Block], first: int) -> None:
        self._blocks = blocks
        self.end = first

    def __iter__(self) -> Following:
        return self

    def __next__(self) -> Block:
        block = next(self._blocks)
        self.end = block.end[0]
        return block


def block_of(
    batch: pa.RecordBatch,
    *,
    schema: pa.Schema,
    wanted: Sequence[str] | None,
    added: Added,
    path: str,
    first: int,
    origin: Origin,
    stage: str,
    unreadable: Sequence[tuple[int, Misfit]] = (),
    misfits: Mapping[int, Misfit] | None = None,
) -> Block:
    """Make the block of parsed rows.

    `unreadable` are rows that are not in the batch, by their number among all rows; `misfits` are rows of the batch
    that are to be taken out. Both become failures; the block covers them all, from the ordinal `first` on.
    """
    total = batch.num_rows + len(unreadable)
    failures = [row_failure(why, first + at, origin=origin, stage=stage) for at, why in unreadable]
    ordinals = None
    if unreadable or misfits:
        ordinals = np.delete(np.arange(first, first + total, dtype=np.int64), [at for at, _ in unreadable])
    if misfits:
        assert ordinals is not None
        failures += [row_failure(why, int(ordinals[row]), origin=origin, stage=stage) for row, why in misfits.items()]
        kept = np.delete(np.arange(batch.num_rows), list(misfits))
        batch, ordinals = batch.take(array_of_numbers(kept)), ordinals[kept]
    return Block(
        batch=finish(batch, schema=schema, wanted=wanted, added=added.values(path)),
        unit=Unit(0),
        start=(first,),
        end=(first + total,),
        ordinals=ordinals,
        failures=tuple(sorted(failures, key=lambda f: f.ordinal)),
        origin=origin,
    )


def finish(
    batch: pa.RecordBatch, *, schema: pa.Schema, wanted: Sequence[str] | None, added: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Return the wanted columns in the order of the schema, columns that turn up late behind them."""
    rows = batch.num_rows
    have = dict(zip(batch.schema.names, batch.columns, strict=True))
    take = None if wanted is None else set(wanted)
    arrays: dict[str, pa.Array] = {}
    for field in schema:
        if take is not None and field.name not in take:
            continue
        if field.name in have:
            arrays[field.name] = have[field.name]
        elif field.name in added:
            arrays[field.name] = constant_column(added[field.name], field.type, rows)
        else:
            arrays[field.name] = pa.nulls(rows, field.type)
    for name, column in have.items():
        if name not in schema.names and (take is None or name in take):
            arrays[name] = column
    if not arrays:
        return empty_columns(rows)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def row_failure(why: Misfit, ordinal: int, *, origin: Origin, stage: str) -> RowFailure:
    """Make the dead letter of a row that cannot be read."""
    file, position = origin.place_of(ordinal)
    return RowFailure(
        stage=stage,
        ordinal=ordinal,
        row=row_as_json(why.row),
        error_type="SourceError",
        message=why.message,
        file=file,
        position=position,
    )
