"""Sources in pipeline.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from headrace.spec.fields import Positive, Texts
from headrace.spec.spec_model import SpecModel


class FileSource(SpecModel):
    """What all sources share."""

    path: Texts = Field(min_length=1, description="files, folders, patterns or URLs, one or a list")
    storage_options: dict[str, Any] | None = None


class RowSource(FileSource):
    """What sources share whose files hold many rows."""

    include_path: str | None = Field(None, description="name of a column for the file that a row comes from")
    partitioning: Literal["hive"] | None = "hive"


class TypedSource(RowSource):
    """What sources share whose types are found from a sample."""

    columns: list[str] | None = None
    dtypes: dict[str, str] | None = Field(None, description="column: type, for instance zip: string")
    type_conflicts: Literal["error", "text"] = "error"


class CsvSource(TypedSource):
    """CSV files."""

    type: Literal["csv"]
    delimiter: str = Field(",", min_length=1, max_length=1)
    null_values: list[str] | None = None
    has_header: bool = True
    column_names: list[str] | None = None
    encoding: str = "utf8"


class JsonSource(TypedSource):
    """JSON Lines files."""

    type: Literal["json"]


class ParquetSource(RowSource):
    """Parquet files."""

    type: Literal["parquet"]
    columns: list[str] | None = None


class TextSource(RowSource):
    """Text files, a row a line."""

    type: Literal["text"]


class BinaryFilesSource(FileSource):
    """Whole files as bytes."""

    type: Literal["binary_files"]
    pattern: Texts | None = None


class ImagesSource(FileSource):
    """Pictures."""

    type: Literal["images"]
    mode: str | None = None
    size: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = Field(
        None, description="[width, height] in pixels"
    )
    pattern: Texts | None = None


Source: TypeAlias = Annotated[
    CsvSource | JsonSource | ParquetSource | TextSource | BinaryFilesSource | ImagesSource,
    Field(discriminator="type"),
]
