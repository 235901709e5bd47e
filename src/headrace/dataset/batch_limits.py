"""Bounds of a model's batches, as the caller gives them: rows, weights, seconds."""

from __future__ import annotations

from typing import Any

from headrace.errors import PlanError
from headrace.plan.nodes import BatchLimits
from headrace.plan.numbers import number, whole_number
from headrace.records.private import WEIGHT


def batch_limits(
    *,
    batch_size: int | None,
    min_batch_size: int | None,
    max_batch_size: int | None,
    max_batch_duration_secs: float | None,
    max_batch_weight: float | None,
    length_fn: Any,
    weight_fn: Any,
    sort_window_rows: int,
    target_latency_secs: float | None,
) -> BatchLimits:
    """Check the bounds and put them together.

    Raises:
        PlanError: one of them makes no sense, or they contradict each other.
    """
    weight = _weight_of(length_fn, weight_fn)
    return BatchLimits(
        **_sizes(batch_size, min_batch_size, max_batch_size),
        max_batch_duration_secs=number("max_batch_duration_secs", max_batch_duration_secs, optional=True),
        max_batch_weight=number("max_batch_weight", max_batch_weight, what="weight", above=0, optional=True),
        weight_column=WEIGHT if callable(weight) else weight,
        padded=length_fn is not None,
        sort_window_rows=whole_number("sort_window_rows", sort_window_rows),
        target_latency_secs=number("target_latency_secs", target_latency_secs, above=0, optional=True),
    )


def _weight_of(length_fn: Any, weight_fn: Any) -> Any:
    """Return the one of the two that is given, a column's name or a function."""
    if length_fn is not None and weight_fn is not None:
        raise PlanError("length_fn is for rows that are padded, weight_fn for weights that add up; pass one of them")
    for key, value in (("length_fn", length_fn), ("weight_fn", weight_fn)):
        if value is not None:
            if not (isinstance(value, str) or callable(value)):
                raise PlanError(f"{key} is {value!r}; pass the name of a column, or a function that returns a number")
            return value
    return None


def _sizes(batch_size: int | None, min_batch_size: int | None, max_batch_size: int | None) -> dict[str, Any]:
    batch_size = whole_number("batch_size", batch_size, optional=True)
    min_batch_size = whole_number("min_batch_size", min_batch_size, optional=True)
    max_batch_size = whole_number("max_batch_size", max_batch_size, optional=True)
    if batch_size is not None:
        if min_batch_size is not None or max_batch_size is not None:
            raise PlanError("batch_size fixes the size; leave min_batch_size and max_batch_size out, or batch_size")
        return {"min_batch_size": batch_size, "max_batch_size": batch_size}
    if min_batch_size is not None and max_batch_size is not None and min_batch_size > max_batch_size:
        raise PlanError(f"min_batch_size {min_batch_size} is more than max_batch_size {max_batch_size}")
    return {"min_batch_size": min_batch_size or 1, "max_batch_size": max_batch_size}
