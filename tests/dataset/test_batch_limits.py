from __future__ import annotations

from typing import Any

import pytest

from headrace.dataset.batch_limits import batch_limits
from headrace.errors import PlanError
from headrace.plan.nodes import BatchLimits
from headrace.records.private import WEIGHT

NOTHING: dict[str, Any] = {
    "batch_size": None,
    "min_batch_size": None,
    "max_batch_size": None,
    "max_batch_duration_secs": None,
    "max_batch_weight": None,
    "length_fn": None,
    "weight_fn": None,
    "sort_window_rows": 4096,
    "target_latency_secs": None,
}


def made(**given: Any) -> BatchLimits:
    return batch_limits(**{**NOTHING, **given})


def test_what_is_not_given_is_not_bounded() -> None:
    assert made() == BatchLimits()


def test_one_size_is_both_bounds() -> None:
    assert made(batch_size=7) == BatchLimits(min_batch_size=7, max_batch_size=7)


@pytest.mark.parametrize(("option", "padded"), [("length_fn", True), ("weight_fn", False)])
def test_weights_come_from_a_column_or_from_a_function(option: str, padded: bool) -> None:
    assert made(**{option: "tokens"}) == BatchLimits(weight_column="tokens", padded=padded)
    assert made(**{option: len}) == BatchLimits(weight_column=WEIGHT, padded=padded)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"batch_size": 0}, "^batch_size is 0; it is a whole number of rows"),
        ({"batch_size": 4, "max_batch_size": 8}, "batch_size fixes the size"),
        ({"min_batch_size": 5, "max_batch_size": 4}, "min_batch_size 5 is more than max_batch_size 4"),
        ({"batch_size": True}, "batch_size is True"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"min_batch_size": "8"}, "min_batch_size is '8'"),
        ({"max_batch_size": -1}, "max_batch_size is -1"),
        ({"max_batch_weight": -1}, "max_batch_weight is -1; it is a weight, more than 0"),
        ({"max_batch_weight": 0}, "max_batch_weight is 0"),
        ({"max_batch_weight": True}, "max_batch_weight is True"),
        ({"max_batch_weight": float("nan")}, "max_batch_weight is nan"),
        ({"max_batch_weight": float("inf")}, "max_batch_weight is inf"),
        ({"target_latency_secs": 0}, "target_latency_secs is 0; it is a number of seconds, more than 0"),
        ({"target_latency_secs": True}, "target_latency_secs is True"),
        ({"max_batch_duration_secs": float("nan")}, "max_batch_duration_secs is nan"),
        ({"max_batch_duration_secs": False}, "max_batch_duration_secs is False"),
        ({"sort_window_rows": None}, "sort_window_rows is None"),
        ({"max_batch_duration_secs": "soon"}, "it is a number of seconds, at least 0"),
        ({"sort_window_rows": 0}, "sort_window_rows is 0"),
        ({"length_fn": 3}, "length_fn is 3; pass the name of a column"),
        ({"length_fn": "a", "weight_fn": "b"}, "pass one of them"),
    ],
)
def test_bounds_that_make_no_sense_are_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        made(**given)
