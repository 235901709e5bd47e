"""Small input files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence


def scatter(
    rows: Sequence[Mapping[str, Any]],
    folder: str | os.PathLike[str],
    *,
    files: int = 3,
    format: Literal["csv", "json", "parquet"] = "csv",
) -> list[Path]:
    """Write rows, in order, to `files` files of about equal length, and return their paths.

    >>> import tempfile, headrace as hr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = scatter([{"id": i} for i in range(10)], folder)
    ...     [path.name for path in paths], hr.read_csv(folder).count()
    (['in-00000.csv', 'in-00001.csv', 'in-00002.csv'], 10)
    """
    paths = []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(files):
        piece = rows[len(rows) * number // files : len(rows) * (number + 1) // files]
        suffix = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}[format]
        path = Path(folder) / f"in-{number:05}.{suffix}"
        _write(piece, path, columns=list(rows[0]) if rows else [])
        paths.append(path)
    return paths


def _write(rows: Sequence[Mapping[str, Any]], path: Path, *, columns: list[str]) -> None:
    if path.suffix == ".csv":
        import csv

        with path.open("w", newline="", encoding="utf8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        import json

        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
