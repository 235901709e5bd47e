"""Times of 96 bits in Parquet files: deprecated, and still what Spark, Hive and Impala have written for years.

They count nanoseconds over more years than Arrow's nanoseconds hold, and Arrow's reader wraps around without a word.
What pyarrow wrote is read in nanoseconds, since it was; everybody else's in microseconds, which Spark's are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headrace.errors import SourceError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

PYARROW = "parquet-cpp"


def columns_of(file: pq.ParquetFile) -> set[str]:
    """Return the columns that hold such times, also inside lists and structs."""
    leaves = (file.schema.column(i) for i in range(len(file.schema.names)))
    return {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def unit_of(file: pq.ParquetFile) -> Literal["us", "ns"]:
    """Return in which unit to read them, by the writer of the file."""
    return "ns" if (file.metadata.created_by or "").startswith(PYARROW) else "us"


def refuse_wrapped(table: pa.Table, path: str) -> None:
    """Raise for times, read in microseconds, that nanoseconds cannot tell."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_timestamp(column.type):
            continue
        try:
            column.cast(pa.timestamp("ns", column.type.tz))
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"{path}: column {name!r} holds times beyond the years 1677 to 2262 in a form (INT96) in which pyarrow "
                "wrote nanoseconds; write the file anew without use_deprecated_int96_timestamps"
            ) from error
