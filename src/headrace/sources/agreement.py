"""One schema for a run: the types that samples of all files agree on, or an error that names who disagrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pyarrow as pa

from headrace.errors import PlanError, SchemaError, UnknownColumnError
from headrace.records.types import TypeQuarrelError, unify_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.sources.storage import File

TypeConflicts: TypeAlias = Literal["error", "text"]
Dtypes: TypeAlias = "tuple[tuple[str, pa.DataType], ...]"

MAX_SAMPLED_FILES = 1_000
SAMPLE_BYTES = 1024 * 1024
"""What is sampled over all files together, about."""

T = TypeVar("T")

_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "int64",
    "integer": "int64",
    "float": "float64",
    "boolean": "bool",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the head of one file says."""

    path: str
    schema: pa.Schema
    mixed: tuple[str, ...] = ()
    """Columns that this file alone already needs as text although their values are of several kinds."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The columns and types that hold for the run."""

    own: pa.Schema
    """What the files themselves hold."""
    schema: pa.Schema
    """The same with the columns that come from paths."""
    as_text: frozenset[str] = frozenset()
    """Columns whose values of other kinds are written as text, by dtypes= or type_conflicts="text"."""


def parse_dtypes(dtypes: Mapping[str, pa.DataType | str] | None) -> Dtypes:
    """Return `dtypes=` with names of types made types.

    >>> parse_dtypes({"zip": "string"})
    (('zip', DataType(string)),)
    """
    return tuple((column, _parse_dtype(column, dtype)) for column, dtype in (dtypes or {}).items())


def agree(
    samples: Sequence[Sample],
    *,
    dtypes: Dtypes,
    type_conflicts: TypeConflicts,
    reader: str,
    advice: str = "pass dtypes={{{column!r}: 'string'}} (or another type that holds both), or type_conflicts='text' "
    "to read such columns as text",
) -> Agreement:
    """Unify the samples of all files; `dtypes` overrides what they say.

    Raises:
        SchemaError: two files disagree and `type_conflicts` is "error".
    """
    forced = dict(dtypes)
    fields: dict[str, pa.DataType] = {}
    seen_in: dict[str, str] = {}
    as_text = {name for name, type_ in forced.items() if pa.types.is_string(type_)}
    for sample in samples:
        as_text.update(name for name in sample.mixed if name not in forced)
        for field in sample.schema:
            name = field.name
            if name in forced:
                fields[name] = forced[name]
                continue
            known = fields.get(name, pa.null())
            try:
                fields[name] = unify_types(known, field.type, name)
            except TypeQuarrelError as quarrel:
                if type_conflicts == "error":
                    raise SchemaError(
                        f"{reader}: column {quarrel.column!r} is {quarrel.left} in {seen_in[name]} and {quarrel.right} "
                        f"in {sample.path}; {advice.format(column=name)}"
                    ) from None
                fields[name] = pa.string()
                as_text.add(name)
            if name not in seen_in or not fields[name].equals(known):
                seen_in[name] = sample.path
    _check_forced(forced, fields, bool(samples), reader)
    schema = pa.schema(fields)
    return Agreement(schema, schema, frozenset(as_text))


def sampled(files: Sequence[File]) -> list[File]:
    """Return the files to look into: at most MAX_SAMPLED_FILES that are not empty, spread evenly."""
    filled = [f for f in files if f.size_bytes != 0]
    count = len(filled)
    if count <= MAX_SAMPLED_FILES:
        return filled
    return [filled[i * count // MAX_SAMPLED_FILES] for i in range(MAX_SAMPLED_FILES)]


def sample_bytes(files: int) -> int:
    """Return how much of each file to look at, so that many files cost about as much as few.

    >>> sample_bytes(1), sample_bytes(16), sample_bytes(1000)
    (524288, 65536, 16384)
    """
    return max(16 * 1024, min(512 * 1024, SAMPLE_BYTES // max(1, files)))


def in_threads(function: Callable[[File], T], files: Sequence[File]) -> list[T]:
    """Apply a function to files in a few threads; answers keep the order of the files."""
    if len(files) < 2:
        return [function(f) for f in files]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(8, len(files)), thread_name_prefix="headrace-sample") as pool:
        return list(pool.map(function, files))


def select_columns(schema: pa.Schema, columns: Sequence[str] | None, *, reader: str) -> pa.Schema:
    """Return the schema with the columns asked for, in its own order.

    Raises:
        UnknownColumnError: one of them is not there.
    """
    if columns is None:
        return schema
    for column in columns:
        if column not in schema.names and schema.names:
            raise UnknownColumnError(column, schema.names, step=reader)
    wanted = set(columns)
    return pa.schema([field for field in schema if field.name in wanted])


def _parse_dtype(column: str, dtype: Any) -> pa.DataType:
    if isinstance(dtype, pa.DataType):
        return dtype
    if isinstance(dtype, type) and dtype in (str, int, float, bool):
        dtype = dtype.__name__
    try:
        return pa.type_for_alias(_ALIASES.get(dtype, dtype))
    except (ValueError, TypeError):
        raise PlanError(
            f"dtypes={{{column!r}: {dtype!r}}}: there is no such type; use 'string', 'int64', 'float64', 'bool', "
            "'timestamp[us]', 'date32' or a pyarrow type"
        ) from None


def _check_forced(
    forced: Mapping[str, pa.DataType], fields: Mapping[str, pa.DataType], sampled_any: bool, reader: str
) -> None:
    for name in forced:
        if sampled_any and name not in fields:
            raise UnknownColumnError(name, fields, step=f"{reader} with dtypes=")
