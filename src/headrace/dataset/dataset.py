"""`Dataset`: a lazy pipeline over rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.dataset.broadcasting import Broadcasting
from headrace.dataset.job import Job
from headrace.dataset.scope import step_name
from headrace.errors import PlanError
from headrace.plan.nodes import Write
from headrace.plan.numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.plan.steps import IfExists
    from headrace.sinks.sink import Sink


class Dataset(Broadcasting):
    """Rows to come, and the steps to take with them. Nothing runs before rows are asked for or a job is run.

    >>> import headrace as hr
    >>> ds = hr.from_items([{"x": 1}, {"x": 2}]).map(lambda r: {"x": r["x"] + 1})
    >>> ds.take(2)
    [{'x': 2}, {'x': 3}]
    """

    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        if_exists: IfExists = "resume",
        target_part_bytes: int | None = None,
        rows_per_part: int | None = None,
        name: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Job:
        """Make a job that writes Parquet parts into a folder; call `.run()` on it.

        `if_exists` is "resume" (go on with an earlier run of the same job), "overwrite" or "fail". Parts are files of
        about `target_part_bytes`, compressed as they are, or have `rows_per_part` rows (more where one input row made
        many, which stay together; fewer where a column turns up). `storage_options` are for URLs, as fsspec takes them.
        `options` go to `ParquetSink` (compression, …).
        """
        from headrace.sinks.parquet import ParquetSink

        return self.write(
            ParquetSink(os.fspath(path), storage_options=storage_options, **options),
            if_exists=if_exists,
            target_part_bytes=target_part_bytes,
            rows_per_part=rows_per_part,
            name=step_name(name, "write_parquet"),
        )

    def write_json(
        self,
        path: str | os.PathLike[str],
        *,
        if_exists: IfExists = "resume",
        target_part_bytes: int | None = None,
        rows_per_part: int | None = None,
        compression: str | None = None,
        name: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Job:
        """Make a job that writes JSON Lines parts into a folder; see `write_parquet`.

        `compression` is "gzip", "zstd" or "bz2".
        """
        from headrace.sinks.json import JsonSink

        return self.write(
            JsonSink(os.fspath(path), compression=compression, storage_options=storage_options),
            if_exists=if_exists,
            target_part_bytes=target_part_bytes,
            rows_per_part=rows_per_part,
            name=step_name(name, "write_json"),
        )

    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        if_exists: IfExists = "resume",
        target_part_bytes: int | None = None,
        rows_per_part: int | None = None,
        compression: str | None = None,
        name: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Job:
        """Make a job that writes CSV parts, each with a header, into a folder; see `write_parquet`.

        `compression` is "gzip", "zstd" or "bz2".
        """
        from headrace.sinks.csv import CsvSink

        return self.write(
            CsvSink(os.fspath(path), compression=compression, storage_options=storage_options),
            if_exists=if_exists,
            target_part_bytes=target_part_bytes,
            rows_per_part=rows_per_part,
            name=step_name(name, "write_csv"),
        )

    def write(
        self,
        sink: Sink,
        *,
        if_exists: IfExists = "resume",
        target_part_bytes: int | None = None,
        rows_per_part: int | None = None,
        name: str | None = None,
    ) -> Job:
        """Make a job that writes to any sink, also one of your own (see `headrace.sinks.sink.Sink`)."""
        if if_exists not in ("resume", "overwrite", "fail"):
            raise PlanError(f"if_exists is {if_exists!r}; use 'resume', 'overwrite' or 'fail'")
        if getattr(sink, "folder", None) == "":
            raise PlanError("the path of the output is empty; pass a folder, such as 'out/'")
        return Job(
            Write(
                name=step_name(None, "write") if name is None else name,
                upstream=self.node,
                sink=sink,
                if_exists=if_exists,
                target_part_bytes=whole_number("target_part_bytes", target_part_bytes, of="bytes", optional=True),
                rows_per_part=whole_number("rows_per_part", rows_per_part, optional=True),
            )
        )

    def __repr__(self) -> str:
        name = self.node.name.rstrip("\0")
        return f"<Dataset ending in {name}; take(), to_arrow() or write_*().run() run it>"
