"""Rows that make no array: the advice is one that helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.model.uneven import why_uneven


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([np.zeros(2), np.zeros(3)], "rows of different lengths; pass collate=hr.PadSequences()"),
        ([np.zeros((2, 5)), np.zeros((3, 5))], "rows of different lengths; pass collate=hr.PadSequences()"),
        ([np.zeros((2, 5)), np.zeros((3, 4))], "pictures of different sizes; pass collate=hr.FitPictures()"),
        ([np.zeros((2, 5, 3)), np.zeros((3, 4, 3))], "pictures of different sizes; pass collate=hr.FitPictures()"),
        ([np.zeros(2), np.zeros((2, 2))], r"rows of different shapes \(\(2,\), \(2, 2\)\); give them one shape"),
        ([np.zeros((1, 2, 3)), np.zeros((1, 3, 4))], "rows of different shapes"),
        ([np.array(["a", "b"], dtype=object)], "text, and a model takes numbers"),
        ([np.array(["a"]), np.zeros(3)], "text, and a model takes numbers"),
        ([np.array([b"a", {"x": 1}], dtype=object)], "bytes and dict, and a model takes numbers"),
        ([np.array([1.5, None], dtype=object)], "null; fill it"),
        ([None, np.zeros(2)], "null; fill it"),
        ([[[1], [2, 3]], [[1], [2, 3]]], "rows of different lengths"),
    ],
)
def test_the_reason_and_what_to_do(rows: list[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        raise ValueError(why_uneven(rows))


def test_only_rows_of_different_lengths_are_told_to_be_padded() -> None:
    assert "PadSequences" not in why_uneven([np.array(["a", "b"], dtype=object), np.array(["c"], dtype=object)])
    assert "PadSequences" not in why_uneven([None, None])
