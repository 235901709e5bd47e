"""Are two outputs the same? A fast program that answers wrongly is no peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class OutputsDifferError(Exception):
    """Two programs that should have done the same work did not; the message names the column and a row."""


def require_same(expected: Path, actual: Path, *, key: str, tolerance: float = 1e-9) -> int:
    """Compare two folders of Parquet files row for row on a key and return the number of rows.

    Columns that only `actual` has are passed over; floats may differ by `tolerance`, relative, since libraries add up
    in different orders.

    Raises:
        OutputsDifferError: rows are missing, are there twice, or differ.
    """
    left = _by_key(expected, key)
    right = _by_key(actual, key, left.column_names)
    if left.num_rows != right.num_rows:
        raise OutputsDifferError(f"{actual} has {right.num_rows} rows, {expected} has {left.num_rows}")
    for name in left.column_names:
        _require_same_column(name, left, right, key, tolerance)
    return int(left.num_rows)


def _by_key(folder: Path, key: str, columns: Sequence[str] | None = None) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    tables = [pyarrow.parquet.ParquetFile(f).read(columns=columns) for f in files]
    if not tables:
        raise OutputsDifferError(f"{folder} holds no Parquet file")
    missing = set(columns or ()) - set(tables[0].column_names)
    if missing:
        raise OutputsDifferError(f"{folder} lacks the columns {sorted(missing)}")
    return pa.concat_tables(tables, promote_options="permissive").sort_by(key)


def _require_same_column(name: str, left: pa.Table, right: pa.Table, key: str, tolerance: float) -> None:
    a = left[name].combine_chunks()
    b = right[name].cast(a.type).combine_chunks()
    if pa.types.is_floating(a.type):
        differs = ~np.isclose(a.to_numpy(False), b.to_numpy(False), rtol=tolerance, atol=0.0, equal_nan=True)
    else:
        # A null beside a value is a difference; two nulls are none.
        equal = pc.fill_null(pc.equal(a, b), False)
        differs = ~pc.or_(equal, pc.and_(pc.is_null(a), pc.is_null(b))).to_numpy(False)
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise OutputsDifferError(
            f"column {name!r} differs in {int(differs.sum())} rows, first where {key} is {left[key][row]}: "
            f"{left[name][row]} is expected, {right[name][row]} is there"
        )
