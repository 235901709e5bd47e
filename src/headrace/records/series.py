"""A pandas Series as a column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.records.columns import to_column


def column_of_series(series: Any, *, like: pa.DataType | None = None) -> pa.Array:
    """Return a Series as a column; objects go by the rules for Python values, and NaN among them is pandas' null.

    >>> import pandas as pd
    >>> column_of_series(pd.Series(["a", float("nan")])).to_pylist()
    ['a', None]
    """
    if series.dtype != object:
        return to_column(pa.Array.from_pandas(series))
    values = series.tolist()
    if set(map(type, values)) - {float}:
        values = [None if isinstance(v, float) and v != v else v for v in values]
    return to_column(values, like=like)
