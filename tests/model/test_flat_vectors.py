"""Exact search in numpy, piece by piece."""

import numpy as np
import pytest

from headrace.model import flat_vectors
from headrace.model.flat_vectors import FlatVectors


@pytest.mark.parametrize("products", [True, False])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_pieces_find_what_the_whole_would(products, k, monkeypatch):
    monkeypatch.setattr(flat_vectors, "QUERIES_AT_ONCE", 3)
    monkeypatch.setattr(flat_vectors, "VECTORS_AT_ONCE", 16)
    random = np.random.default_rng(1)
    vectors, queries = random.standard_normal((100, 5)), random.standard_normal((10, 5))
    found, places = FlatVectors(vectors.astype("f4"), products=products).search(queries.astype("f4"), k)
    if products:
        expected = queries @ vectors.T
        order = np.argsort(-expected, axis=1)[:, :k]
    else:
        expected = ((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
        order = np.argsort(expected, axis=1)[:, :k]
    assert places.tolist() == order.tolist()
    assert found == pytest.approx(np.take_along_axis(expected, order, 1), rel=1e-3, abs=1e-5)


def test_what_is_there_itself_is_at_no_distance_however_far_out():
    vectors = np.random.default_rng(1).standard_normal((50, 8)).astype("f4") + 1000
    measures, places = FlatVectors(vectors, products=False).search(vectors, 1)
    found = places[:, 0]
    assert measures[found == np.arange(50)].max() == 0
