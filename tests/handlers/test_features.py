from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.handlers.features import check_count, check_names, in_order, number_matrix, numbers, vectors
from headrace.records.columns import to_column


def test_columns_are_put_in_the_models_order_and_others_left_out() -> None:
    batch = pa.record_batch({"id": [1], "spend": [2.5], "age": [31]})
    assert in_order(batch, ["age", "spend"]).to_pydict() == {"age": [31], "spend": [2.5]}


def test_missing_columns_are_named_with_the_nearest_that_is_left() -> None:
    with pytest.raises(PlanError, match=r"age, spend are not among those given \(ages, x\); did you mean 'ages'\?"):
        check_names(["age", "spend"], ["ages", "x"])
    with pytest.raises(PlanError, match=r"takes 3 features and was given 2 columns \(a, b\)"):
        check_count(3, ["a", "b"])


def test_numbers_of_every_type_with_nulls_as_nan() -> None:
    columns = {
        "int": pa.array([1, None], pa.int64()),
        "bool": pa.array([True, None]),
        "decimal": pa.array([Decimal("1.5"), None]),
        "null": pa.nulls(2),
        "coded": pa.array([7, None]).dictionary_encode(),
        "among others": to_column([1.5, None]),
    }
    matrix = number_matrix(pa.record_batch(columns), np.float64)
    np.testing.assert_array_equal(matrix, [[1, 1, 1.5, np.nan, 7, 1.5], [np.nan] * 6])
    assert number_matrix(pa.record_batch(columns), np.float32, order="F").flags.f_contiguous


def test_what_is_no_number_is_told_with_its_feature() -> None:
    with pytest.raises(ValueError, match="feature 'age' takes numbers and was given text"):
        numbers(pa.array(["1.5"]), "age")
    with pytest.raises(ValueError, match="feature 'age' takes numbers and was given 'old'"):
        numbers(to_column([1.5, "old"]), "age")
    np.testing.assert_array_equal(numbers(to_column([1.5, "old", None, 3]).slice(2), "age"), [np.nan, 3])


def test_vectors_have_to_be_as_long_as_the_model_is_wide() -> None:
    np.testing.assert_array_equal(vectors(pa.array([[1.0, 2.0], [3.0, 4.0]]), 2), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(vectors(pa.array([1, 2]), 1), [[1], [2]])
    with pytest.raises(ValueError, match="takes 3 features a row and was given vectors of 2"):
        vectors(pa.array([[1.0, 2.0]]), 3)
    with pytest.raises(PlanError, match="takes 3 features and was given one column of numbers.*inputs="):
        vectors(pa.array([1, 2]), 3)
    with pytest.raises(ValueError, match="of various lengths"):
        vectors(pa.array([[1.0, 2.0], [3.0]]), 2)
    with pytest.raises(ValueError, match="given text"):
        vectors(pa.array(["a"]), 2)
