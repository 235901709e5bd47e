"""Asserts that say what differs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.metrics.balance import balance_of
from headrace.metrics.quantities import count
from headrace.records.columns import to_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.metrics.statistics import RunStatistics

Row = dict[str, Any]
_SHOWN = 5


def assert_same_rows(
    actual: Any, expected: Any, *, key: str | Sequence[str] | None = None, order: bool = False, tolerance: float = 0.0
) -> None:
    """Assert that two sets of rows are equal; by default in any order, each as often in one as in the other.

    Rows may come as a list of dicts, an Arrow table or batch, a pandas DataFrame, a `Dataset` (which is run) or a
    `CollectingSink`. With `key`, rows are compared by these columns, and the message says which other column differs;
    `tolerance` is for floats, and needs `key` or `order`. NaN equals NaN.

    >>> assert_same_rows([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}])
    >>> assert_same_rows([{"id": 1, "n": 3}], [{"id": 1, "n": 4}], key="id")
    Traceback (most recent call last):
    AssertionError: 1 difference between 1 row and 1 expected
      row {'id': 1}: column 'n' is 3, expected 4

    Raises:
        AssertionError: they differ; the message names up to five rows.
        ValueError: there is a tolerance, but neither key nor order.
    """
    if tolerance and key is None and not order:
        raise ValueError("tolerance= compares pairs of rows: say by key= or order=True which belong together")
    left, right = _rows(actual), _rows(expected)
    if key is not None:
        names = (key,) if isinstance(key, str) else tuple(key)
        problems = _by_key(left, right, names, order, tolerance)
    elif order:
        problems = _in_order(left, right, tolerance)
    else:
        problems = _as_bags(left, right)
    if problems:
        more = [f"  … and {len(problems) - _SHOWN:,} more"] if len(problems) > _SHOWN else []
        head = f"{count(len(problems), 'difference')} between {count(len(left), 'row')} and {len(right):,} expected"
        raise AssertionError("\n".join([head, *(f"  {problem}" for problem in problems[:_SHOWN]), *more]))


def assert_balanced(result: Any, *, left_over: int = 0) -> None:
    """Assert that a run's counts add up: each step's, and what was read against what was written.

    `result` is what `.run()` returns, or its statistics. `left_over` is the number of rows that are expected to be read
    and not carried on: beyond a limit, or finished by an earlier run. With several sinks or none the steps are checked.

    >>> import headrace as hr
    >>> from headrace.testing import CollectingSink
    >>> assert_balanced(hr.range(10).filter(lambda row: row["id"] % 2).write(CollectingSink()).run())

    Raises:
        AssertionError: they do not; the message names the step or the sum.
    """
    statistics: RunStatistics = getattr(result, "statistics", result)
    for stage in statistics.stages:
        for step in stage.steps:
            gone = step.rows_out + step.filtered + step.failed
            _require(
                step.fans_out or step.rows_in == gone,
                f"step {step.name!r} took {step.rows_in:,} rows and accounts for {gone:,}: "
                f"{step.rows_out:,} passed on, {step.filtered:,} filtered, {step.failed:,} failed",
            )
    balance = balance_of(statistics)
    _require(balance.holds is not False, f"the run does not add up: {balance}")
    _require(
        balance.branches != 1 or balance.other == left_over,
        f"{balance.other:,} rows were read but not written, failed or filtered; expected {left_over:,} ({balance})",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:  # no assert statement: `python -O` would leave it out
        raise AssertionError(message)


def _rows(data: Any) -> list[Row]:
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        data = pa.Table.from_pandas(data, preserve_index=False)
    elif hasattr(data, "to_arrow"):
        data = data.to_arrow()
    if isinstance(data, pa.Table):
        return [row for batch in data.to_batches() for row in to_rows(batch)]
    if isinstance(data, pa.RecordBatch):
        return to_rows(data)
    return [dict(row) for row in data]


def _by_key(left: list[Row], right: list[Row], names: tuple[str, ...], order: bool, tolerance: float) -> list[str]:
    if order and [_key(row, names) for row in left] != [_key(row, names) for row in right]:
        return ["the keys come in another order", *_in_order(_only(left, names), _only(right, names), 0.0)]
    mine, theirs = _indexed(left, names), _indexed(right, names)
    problems = [f"row {_only([row], names)[0]}: not expected" for k, row in mine.items() if k not in theirs]
    for k, row in theirs.items():
        name = _only([row], names)[0]
        if k not in mine:
            problems.append(f"row {name}: missing")
        else:
            problems += [f"row {name}: {difference}" for difference in _differences(mine[k], row, tolerance)]
    return problems


def _in_order(left: list[Row], right: list[Row], tolerance: float) -> list[str]:
    problems = []
    for number, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        differences = _differences(mine, theirs, tolerance)
        if differences:
            problems.append(f"row {number}: {'; '.join(differences)}")
    shorter = min(len(left), len(right))
    problems += [f"row {shorter + i}: not expected: {row}" for i, row in enumerate(left[shorter:])]
    problems += [f"row {shorter + i}: missing: {row}" for i, row in enumerate(right[shorter:])]
    return problems


def _as_bags(left: list[Row], right: list[Row]) -> list[str]:
    mine, theirs = Counter(map(_frozen, left)), Counter(map(_frozen, right))
    shown = {_frozen(row): row for row in (*left, *right)}
    problems = [f"not expected: {shown[k]}" + _times(n) for k, n in (mine - theirs).items()]
    return problems + [f"missing: {shown[k]}" + _times(n) for k, n in (theirs - mine).items()]


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _indexed(rows: list[Row], names: tuple[str, ...]) -> dict[Any, Row]:
    index: dict[Any, Row] = {}
    for row in rows:
        key = _key(row, names)
        _require(key not in index, f"key {_only([row], names)[0]} stands for several rows; name more columns in key=")
        index[key] = row
    return index


def _key(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    absent = [name for name in names if name not in row]
    _require(not absent, f"key column {', '.join(map(repr, absent))} is not in row {row}")
    return tuple(_frozen(row[name]) for name in names)


def _only(rows: list[Row], names: tuple[str, ...]) -> list[Row]:
    return [{name: row.get(name) for name in names} for row in rows]


def _differences(mine: Row, theirs: Row, tolerance: float) -> list[str]:
    found = [f"column {name!r} is missing" for name in theirs if name not in mine]
    for name, value in mine.items():
        if name not in theirs:
            found.append(f"column {name!r} is not expected")
        elif not _alike(value, theirs[name], tolerance):
            found.append(f"column {name!r} is {value!r}, expected {theirs[name]!r}")
    return found


def _alike(mine: Any, theirs: Any, tolerance: float) -> bool:
    if tolerance and isinstance(mine, float | int) and isinstance(theirs, float | int):
        return math.isclose(mine, theirs, rel_tol=tolerance, abs_tol=tolerance) or _frozen(mine) == _frozen(theirs)
    if tolerance and _is_sequence(mine) and _is_sequence(theirs) and len(mine) == len(theirs):
        return all(_alike(a, b, tolerance) for a, b in zip(mine, theirs, strict=True))
    return bool(_frozen(mine) == _frozen(theirs))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _frozen(value: Any) -> Any:
    """Return a hashable stand-in that is equal for equal values; booleans and texts are never numbers."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN", "NaN"
    if isinstance(value, bool):
        return "bool", value
    try:
        hash(value)
    except TypeError:
        return "object", repr(value)
    return value
