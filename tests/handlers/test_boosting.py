"""What the three handlers share and needs no framework; the rest is in the tests of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.handlers.boosting import Features, classes_of, probabilities_of


def test_features_without_names_go_by_number() -> None:
    features = Features(2)
    features.check(["x", "y"])
    with pytest.raises(PlanError, match=r"takes 2 features and was given 3 columns \(id, x, y\)"):
        features.check(["id", "x", "y"])
    features.check(["v"])  # which may hold vectors
    with pytest.raises(PlanError, match=r"takes 2 features and was given 1 column \(x\)|one column of numbers"):
        features.of(pa.record_batch({"x": [1.0]}), "H")
    batch = pa.record_batch({"x": [1.0], "y": [2.0]})
    assert features.of(batch, "H") is batch
    np.testing.assert_array_equal(features.of(pa.record_batch({"v": [[1.0, 2.0]]}), "H"), [[1, 2]])
    np.testing.assert_array_equal(features.of(pa.array([[1.0, 2.0]]), "H"), [[1, 2]])


def test_features_by_name_come_from_tables_too_and_from_nothing_without_names() -> None:
    features = Features(2, ("a", "b"))
    table = pa.table({"b": pa.chunked_array([[1], [2]]), "a": pa.chunked_array([[3], [4]])})
    assert features.of(table, "H").to_pydict() == {"a": [3, 4], "b": [1, 2]}
    with pytest.raises(PlanError, match="H takes columns: inputs= names them"):
        features.of({"x": np.zeros((2, 2))}, "H")


def test_classes_and_probabilities() -> None:
    assert classes_of(np.array([0.5, 0.51])).tolist() == [0, 1]
    assert classes_of(np.array([[0.1, 0.9], [0.5, 0.5]])).tolist() == [1, 0]
    assert probabilities_of(np.array([0.25, 1.0])).tolist() == [[0.75, 0.25], [0.0, 1.0]]
