"""Whole files as rows: their path and their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.masking import masked
from headrace.records.block import Block, Unit
from headrace.records.columns import empty_columns
from headrace.records.failure import RowFailure, row_as_json
from headrace.sources.agreement import select_columns
from headrace.sources.extents import fingerprint_of, plan_splits, version_of
from headrace.sources.storage import ByteStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.sources.listing import FileSet
    from headrace.sources.source import Split

BINARY_SCHEMA = pa.schema({"path": pa.string(), "bytes": pa.large_binary()})
BLOCK_BYTES = 4 * 1024 * 1024
MAX_BLOCK_FILES = 64
"""Pictures grow twentyfold when they are decoded: few files a block keep memory small and workers even."""


@dataclass(frozen=True, kw_only=True)
class BinarySource:
    """Files as rows; made by `headrace.read_binary_files` and `read_images`, which document it."""

    fileset: FileSet
    columns: tuple[str, ...] | None = None
    reader: str = "read_binary_files"
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    @property
    def name(self) -> str:
        """Short name for plans and messages."""
        return f"{self.reader}({self.fileset.label})"

    @property
    def passed_over(self) -> int:
        """Files in the folders that do not fit the pattern."""
        return self.fileset.passed_over

    def splits(self) -> Sequence[Split]:
        """List the splits: files packed together."""
        if "splits" not in self._cache:
            self._cache["splits"] = plan_splits(self.fileset.files(), lambda _file: ())
        found: Sequence[Split] = self._cache["splits"]
        return found

    def schema(self) -> pa.Schema:
        """Return the columns `path` and `bytes`."""
        return select_columns(BINARY_SCHEMA, self.columns, reader=self.name)

    def version(self, split: Split) -> str:
        """Return what changes whenever the files may have changed."""
        return version_of(split)

    def fingerprint(self, split: Split) -> str:
        """Return the digest of the files' bytes and paths."""
        paths = repr([masked(extent.path) for extent in split.detail.extents])
        return fingerprint_of(split, storage_options=self.fileset.storage_options, lines=False, salt=paths)

    def read(self, split: Split, *, columns: Sequence[str] | None, start: int = 0) -> Iterator[Block]:
        """Yield the files of a split; a block holds several, so that its origin names none."""
        schema = self.schema() if columns is None else select_columns(BINARY_SCHEMA, columns, reader=self.name)
        pending = _Pending(schema, start)
        for ordinal, extent in enumerate(split.detail.extents):
            if ordinal < start:
                continue
            try:
                data = self._content(extent.path) if "bytes" in schema.names else b""
                pending.add(extent.path, data, ordinal)
            except HeadraceError as error:
                pending.fail(extent.path, error, ordinal, self.name)
            if pending.size >= BLOCK_BYTES or pending.end - pending.start >= MAX_BLOCK_FILES:
                yield pending.block()
                pending = _Pending(schema, ordinal + 1)
        if pending.end > pending.start:
            yield pending.block()

    def _content(self, path: str) -> bytes:
        with ByteStream(path, storage_options=self.fileset.storage_options, raw=True) as stream:
            return stream.read_all()


class _Pending:
    """A block in the making."""

    def __init__(self, schema: pa.Schema, start: int) -> None:
        self.start = self.end = start
        self.size = 0
        self._schema = schema
        self._paths: list[str] = []
        self._contents: list[bytes] = []
        self._ordinals: list[int] = []
        self._failures: list[RowFailure] = []

    def add(self, path: str, data: bytes, ordinal: int) -> None:
        self._paths.append(masked(path))
        self._contents.append(data)
        self._ordinals.append(ordinal)
        self.size += len(data)
        self.end = ordinal + 1

    def fail(self, path: str, error: HeadraceError, ordinal: int, stage: str) -> None:
        self._failures.append(
            RowFailure(
                stage=stage,
                ordinal=ordinal,
                row=row_as_json({"path": masked(path)}),
                error_type=type(error).__name__,
                message=str(error),
                file=path,
                position=0,
            )
        )
        self.end = ordinal + 1

    def block(self) -> Block:
        columns = {"path": self._paths, "bytes": self._contents}
        arrays = [pa.array(columns[f.name], f.type) for f in self._schema]
        rows = len(self._paths)
        return Block(
            batch=pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else empty_columns(rows),
            unit=Unit(0),
            start=(self.start,),
            end=(self.end,),
            ordinals=np.array(self._ordinals, dtype=np.int64) if self._failures else None,
            failures=tuple(self._failures),
        )
