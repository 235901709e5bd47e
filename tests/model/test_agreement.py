from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.agreement import COMPARED, EQUAL, agreement


def compared(one: pa.Array, other: pa.Array) -> tuple[int, int]:
    found = agreement({"a": one, "b": other})
    return found[COMPARED, "a", "b"], found[EQUAL, "a", "b"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.array(["x", None, "y"]), pa.array(["x", "x", "z"], pa.large_string()), (2, 1)),
        (pa.array(["x", "y"]).dictionary_encode(), pa.array(["x", "y"]), (2, 2)),
        (pa.array([1, 2, 3]), pa.array([1.0, 2.5, None]), (2, 1)),
        (pa.array([2**60 + 1, 5]), pa.array([2**60, 5]), (2, 1)),
        (pa.array([0.1 + 0.2, 1.0]), pa.array([0.3, 1.001]), (2, 1)),
        (pa.array([np.nan]), pa.array([np.nan]), (1, 1)),
        (pa.array([True, False]), pa.array([True, True]), (2, 1)),
        (pa.array([{"label": "x", "score": 0.1}, None]), pa.array([{"label": "x", "score": 0.9}] * 2), (1, 1)),
        (pa.array(["1"]), pa.array([1]), (0, 0)),
        (pa.array([[1.0]]), pa.array([[1.0]]), (0, 0)),
        (pa.nulls(2), pa.array(["a", "b"]), (0, 0)),
    ],
)
def test_answers_of_one_kind_are_compared_where_both_models_gave_one(
    one: pa.Array, other: pa.Array, expected: tuple[int, int]
) -> None:
    assert compared(one, other) == expected


def test_every_pair_is_compared() -> None:
    found = agreement({name: pa.array([1]) for name in "abc"})
    assert {key[1:] for key in found} == {("a", "b"), ("a", "c"), ("b", "c")}
