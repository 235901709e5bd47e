"""Where pipelines begin: files, tables and values to datasets. Nothing is read before a pipeline runs.

**Paths** are text or path objects, one or a list: files, folders (searched to the bottom; names that begin with "."
or "_" are left out), globs ("**" too) and URLs (`s3://`, `gs://`, `az://`, `http(s)://`, with `storage_options=` for
fsspec). Files ending in .gz, .zst or .bz2 are decompressed. A path that matches nothing is a NoInputError; an empty
file has no rows. From folders only files with the format's suffixes are taken, files named one by one always.

**Types** are found in the heads of the files (of 1,000 of them, spread evenly, where there are more) and hold for the
run. Nulls go with any type and integers with floats; anything else that files disagree about is a SchemaError. A row
that does not fit later on fails alone, and the message says which `dtypes=` would have taken it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headrace.dataset import Dataset
from headrace.dataset.scope import step_name
from headrace.errors import PlanError
from headrace.plan.nodes import MapBatches, Read
from headrace.plan.numbers import whole_number
from headrace.plan.steps import Step
from headrace.sources.agreement import parse_dtypes
from headrace.sources.assembly import Added
from headrace.sources.listing import FileSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from headrace.sources.agreement import TypeConflicts
    from headrace.sources.listing import Paths
    from headrace.sources.source import Source

Partitioning = Literal["hive"]


def read_csv(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, pa.DataType | str] | None = None,
    delimiter: str = ",",
    null_values: Sequence[str] = ("",),
    has_header: bool = True,
    column_names: Sequence[str] | None = None,
    encoding: str = "utf8",
    type_conflicts: TypeConflicts = "error",
    include_path: str | None = None,
    partitioning: Partitioning | None = "hive",
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    r"""Read CSV files (.csv, .tsv in folders). Quoted line breaks belong to their cells, in files of any size.

    Whole numbers, numbers with a point, true/false and text are told apart; codes with leading zeros, numbers beyond
    64 bits, dates and "NA" are text. A cell that is one of `null_values` is null in columns that are not text; in text
    it stays what it is, so that empty text is "". A row with the wrong number of cells fails alone.

    Args:
        paths: files, folders, globs or URLs, as described at the top of this module.
        columns: the columns to keep; others are not even parsed.
        dtypes: types by column, such as {"zip": "string", "when": "timestamp[us]"}; they go before what is found.
        delimiter: one character; pass "\t" for .tsv files. A header that seems to be cut at another is an error.
        null_values: what stands for null in columns that are not text.
        has_header: whether the first row holds the names; without it and `column_names` they are f0, f1, …
        column_names: names instead of the header's.
        encoding: of all files; files that are not UTF-8 are never cut into splits.
        type_conflicts: "text" reads columns that files disagree about as text.
        include_path: name of a column for each row's file.
        partitioning: "hive" makes columns of key=value in folder names (integers if all are, else text).
        storage_options: for URLs, as fsspec takes them.

    >>> read_csv("data/*.csv", dtypes={"zip": "string"})  # doctest: +SKIP
    """
    from headrace.sources.csv import CSV_PATTERNS, CsvSource

    _check_conflicts("read_csv", type_conflicts)
    return _dataset(
        "read_csv",
        CsvSource(
            fileset=FileSet.of(paths, patterns=CSV_PATTERNS, storage_options=storage_options),
            columns=_names(columns),
            dtypes=parse_dtypes(dtypes),
            delimiter=delimiter,
            null_values=tuple(null_values),
            has_header=has_header,
            column_names=_names(column_names),
            encoding=encoding,
            type_conflicts=type_conflicts,
            added=Added(include_path=include_path, partitioning=partitioning),
        ),
    )


def read_json(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, pa.DataType | str] | None = None,
    type_conflicts: TypeConflicts = "error",
    include_path: str | None = None,
    partitioning: Partitioning | None = "hive",
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read JSON Lines files, one object a line (.jsonl, .ndjson, .json in folders); lines may be of any length.

    Columns are all keys met, null where a row lacks one, also keys that turn up late. Text stays text, also where it
    looks like a date; blank lines are passed over; a line that is no object fails alone. With a column's dtype
    "string", or `type_conflicts="text"`, values that are not text are written as JSON.

    >>> read_json("calls/", dtypes={"note": "string"})  # doctest: +SKIP
    """
    from headrace.sources.json import JSON_PATTERNS, JsonSource

    _check_conflicts("read_json", type_conflicts)
    return _dataset(
        "read_json",
        JsonSource(
            fileset=FileSet.of(paths, patterns=JSON_PATTERNS, storage_options=storage_options),
            columns=_names(columns),
            dtypes=parse_dtypes(dtypes),
            type_conflicts=type_conflicts,
            added=Added(include_path=include_path, partitioning=partitioning),
        ),
    )


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    include_path: str | None = None,
    partitioning: Partitioning | None = "hive",
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read Parquet files (.parquet, .pq in folders). Large files are read by row groups, only the columns needed.

    >>> read_parquet("sales/", columns=["id", "price"])  # doctest: +SKIP
    """
    from headrace.sources.parquet import PARQUET_PATTERNS, ParquetSource

    return _dataset(
        "read_parquet",
        ParquetSource(
            fileset=FileSet.of(paths, patterns=PARQUET_PATTERNS, storage_options=storage_options),
            columns=_names(columns),
            added=Added(include_path=include_path, partitioning=partitioning),
        ),
    )


def read_text(
    paths: Paths,
    *,
    include_path: str | None = None,
    partitioning: Partitioning | None = "hive",
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read text files (every file in folders), one row a line, in the column `text`, without the line ends.

    Empty lines are rows. A line that is not UTF-8 fails alone.

    >>> read_text("logs/*.log", include_path="file")  # doctest: +SKIP
    """
    from headrace.sources.text import TextSource

    return _dataset(
        "read_text",
        TextSource(
            fileset=FileSet.of(paths, storage_options=storage_options),
            added=Added(include_path=include_path, partitioning=partitioning),
        ),
    )


def read_binary_files(
    paths: Paths,
    *,
    pattern: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read whole files as rows with the columns `path` and `bytes`. A file that cannot be read fails alone.

    `pattern` (globs on the file's name, without regard to case) chooses among the files of folders; the others are
    counted as passed over.

    >>> read_binary_files("scans/", pattern=["*.pdf", "*.djvu"])  # doctest: +SKIP
    """
    from headrace.sources.binary import BinarySource

    return _dataset("read_binary_files", BinarySource(fileset=_pattern_files(paths, pattern, storage_options)))


def read_images(
    paths: Paths,
    *,
    mode: str | None = None,
    size: tuple[int, int] | None = None,
    pattern: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read pictures as rows with the columns `path` and `image`, an array of height × width (× channels).

    The camera's turn mark (EXIF orientation) is applied: an upright photo of 60 × 20 pixels stored lying comes as an
    array of shape (60, 20, 3). Without `mode` and `size` each picture keeps its own channels and size; channels are 8
    bits, except that pictures of 16 bits keep them. Palettes are resolved. CSV and JSON Lines hold such a mixture as
    nested lists; for Parquet pass `mode`, or `drop("image")` behind the model. Files of folders whose name is no
    picture's are passed over and counted; a picture that cannot be decoded fails alone.

    Args:
        paths: files, folders, globs or URLs, as described at the top of this module.
        mode: "RGB", "L" (grey), "RGBA", … for all pictures.
        size: (width, height) for all pictures.
        pattern: globs on file names instead of the usual suffixes.
        storage_options: for URLs, as fsspec takes them.

    Raises:
        MissingDependencyError: Pillow is not installed.

    >>> read_images("shelf/", mode="RGB", size=(224, 224))  # doctest: +SKIP
    """
    from headrace.sources.binary import BinarySource
    from headrace.sources.images import IMAGE_PATTERNS, DecodeImage

    decode = DecodeImage(mode=mode, size=None if size is None else (int(size[0]), int(size[1])))
    decode.check()
    files = _pattern_files(paths, IMAGE_PATTERNS if pattern is None else pattern, storage_options)
    read = Read(name=step_name(None, "read_images"), source=BinarySource(fileset=files, reader="read_images"))
    step = Step(name=step_name(None, "decode_image"), kind="map", function=decode, native=True)
    return Dataset(MapBatches(upstream=read, step=step))


def from_items(items: Iterable[Any]) -> Dataset:
    """Make a dataset of values in memory: dicts become rows, anything else a row with the column `item`.

    >>> from_items([{"id": 1}, {"id": 2, "lang": "fi"}]).schema().names  # doctest: +SKIP
    ['id', 'lang']
    """
    return _dataset("from_items", items_source(items))


def from_arrow(data: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> Dataset:
    """Make a dataset of an Arrow table or record batch; a reader is read to its end, into memory, now."""
    import pyarrow as pa

    from headrace.sources.memory import MemorySource

    if not isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        raise PlanError(
            f"from_arrow takes a pyarrow Table, RecordBatch or RecordBatchReader, not {type(data).__name__}"
        )
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    return _dataset("from_arrow", MemorySource(table=data, name="from_arrow"))


def from_pandas(df: Any) -> Dataset:
    """Make a dataset of a pandas DataFrame. The index is left out: use `df.reset_index()` to keep it."""
    from headrace.sources.memory import MemorySource

    return _dataset("from_pandas", MemorySource(table=_table_of_pandas(df), name="from_pandas"))


def range(n: int) -> Dataset:
    """Make a dataset of the numbers 0 … n-1 in the column `id`, made as they are read."""
    from headrace.sources.numbers import NumberSource

    n = whole_number("range", n, least=0)
    return _dataset("range", NumberSource(stop=int(n)))


def read(source: Source) -> Dataset:
    """Make a dataset of a source of your own: an object with the methods of `headrace.sources.source.Source`.

    >>> from headrace.sources.numbers import NumberSource
    >>> read(NumberSource(stop=3)).count()  # doctest: +SKIP
    3
    """
    lacking = [m for m in ("name", "splits", "schema", "read", "fingerprint", "version") if not hasattr(source, m)]
    if lacking:
        raise PlanError(f"read: {type(source).__name__} is no source; it lacks {', '.join(lacking)}")
    return _dataset("read", source)


def items_source(items: Iterable[Any]) -> Source:
    """Return the source behind `from_items`.

    >>> items_source(["a", "b"]).schema().names
    ['item']
    """
    import pyarrow as pa

    from headrace.records.columns import from_rows
    from headrace.sources.memory import MemorySource

    rows = list(items)
    if not rows:
        return MemorySource(table=pa.table({}), rows=0)
    dicts = sum(isinstance(row, dict) for row in rows)
    if dicts not in (0, len(rows)):
        raise PlanError("from_items: some items are dicts and others are not; make them all dicts, one a row")
    if dicts:
        names = {name for row in rows for name in row}
        odd = next((name for name in names if not isinstance(name, str)), None)
        if odd is not None:
            raise PlanError(f"from_items: the key {odd!r} is no text; columns have names")
    batch = from_rows(rows if dicts else [{"item": row} for row in rows])
    return MemorySource(table=pa.Table.from_batches([batch]), rows=len(rows))


def _dataset(name: str, source: Source) -> Dataset:
    return Dataset(Read(name=step_name(None, name), source=source))


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def _check_conflicts(reader: str, type_conflicts: str) -> None:
    if type_conflicts not in ("error", "text"):
        raise PlanError(f"{reader}: type_conflicts={type_conflicts!r} must be 'error' or 'text'")


def _pattern_files(
    paths: Paths, pattern: str | Sequence[str] | None, storage_options: Mapping[str, Any] | None
) -> FileSet:
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern or ())
    for one in patterns:
        if "/" in one:
            raise PlanError(f"pattern={one!r} is matched against file names alone; put folders into the paths")
    return FileSet.of(paths, patterns=patterns, storage_options=storage_options)


def _table_of_pandas(df: Any) -> pa.Table:
    import pyarrow as pa

    from headrace.records.series import column_of_series

    if not hasattr(df, "columns"):
        raise PlanError(f"from_pandas takes a DataFrame, not {type(df).__name__}; from_items takes lists of values")
    names = [str(c) for c in df.columns]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise PlanError(f"from_pandas: two columns are named {twice!r}; rename one of them")
    columns = [column_of_series(df.iloc[:, i]) for i, _ in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)
