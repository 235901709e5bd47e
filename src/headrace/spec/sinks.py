"""Sinks in pipeline.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from headrace.spec.fields import Positive
from headrace.spec.spec_model import SpecModel


class FileSink(SpecModel):
    """What all sinks share."""

    path: str = Field(min_length=1, description="folder or URL")
    name: str | None = None
    if_exists: Literal["resume", "overwrite", "fail"] | None = None
    target_part_bytes: Positive | None = None
    rows_per_part: Positive | None = None
    storage_options: dict[str, Any] | None = None
    compression: str | None = None


class CsvSink(FileSink):
    """CSV files."""

    type: Literal["csv"]


class JsonSink(FileSink):
    """JSON Lines files."""

    type: Literal["json"]


class ParquetSink(FileSink):
    """Parquet files."""

    type: Literal["parquet"]
    compression_level: int | None = None


Sink: TypeAlias = Annotated[CsvSink | JsonSink | ParquetSink, Field(discriminator="type")]
