"""Hive-style partition columns: `key=value` in folder names, and the column that holds a row's path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEY_VALUE = re.compile(r"([A-Za-z_][\w.\-]*)=(.*)")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_values(path: str) -> dict[str, str | None]:
    """Return the keys and values in the folder names of a path.

    >>> partition_values("sales/year=2024/land=C%C3%B4te/part.csv")
    {'year': '2024', 'land': 'Côte'}
    """
    if "=" not in path:
        return {}
    matches = (_KEY_VALUE.fullmatch(part) for part in path.split("/")[:-1])
    pairs = ((m[1], unquote(m[2])) for m in matches if m)
    return {key: None if value == _NULL else value for key, value in pairs}


def partition_schema(paths: Iterable[str]) -> pa.Schema:
    """Return the partition columns of all paths: int64 where every value is a canonical integer, else text.

    >>> partition_schema(["y=2024/m=01/a.csv", "y=2025/m=12/a.csv"]).types
    [DataType(int64), DataType(string)]
    """
    values: dict[str, set[str | None]] = {}
    for folder in {path.rpartition("/")[0] for path in paths if "=" in path}:
        for key, value in partition_values(f"{folder}/").items():
            values.setdefault(key, set()).add(value)
    return pa.schema({key: _type_of(found) for key, found in values.items()})


def constant_column(value: str | None, type_: pa.DataType, rows: int) -> pa.Array:
    """Return a column that holds one value in each row.

    >>> constant_column("7", pa.int64(), 2).to_pylist()
    [7, 7]
    """
    if value is None:
        return pa.nulls(rows, type_)
    return pa.repeat(pa.scalar(int(value) if pa.types.is_integer(type_) else value, type_), rows)


def _type_of(values: set[str | None]) -> pa.DataType:
    present = [v for v in values if v is not None]
    canonical = all(re.fullmatch(r"0|-?[1-9]\d{0,17}", v) for v in present)
    return pa.int64() if present and canonical else pa.string()
