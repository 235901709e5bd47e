"""Indexes of vectors as they are built and asked."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import PlanError, UnknownColumnError
from headrace.model.flat_vectors import FlatVectors
from headrace.model.vector_index import IndexBuilder, Search, VectorIndex

PLACES = pa.table({"name": ["origin", "east", "north"], "place": [[0.1, 0.1], [4.0, 0.1], [0.1, 3.0]]})


def index_of(metric, key="name", table=PLACES):
    return IndexBuilder(FlatVectors.of, column="place", key=key, metric=metric)(table)


@pytest.mark.parametrize(
    ("metric", "names", "distances"),
    [
        ("l2", ["origin", "east"], [1.0, 2.9]),
        ("cosine", ["origin", "north"], [0.0, 1 - 3.1 / np.sqrt(2) / np.hypot(3.0, 0.1)]),
        ("inner_product", ["east", "north"], [4.51, 3.41]),
    ],
)
def test_metrics_mean_what_they_say(metric, names, distances):
    query = [[1.1, 0.1]] if metric == "l2" else [[1.0, 1.0]] if metric == "cosine" else [[1.1, 1.1]]
    found, measured = index_of(metric).search(query, k=2)
    assert found.to_pylist() == [names]
    assert measured.to_pylist()[0] == pytest.approx(distances, abs=1e-5)


def test_without_a_key_rows_have_numbers():
    assert index_of("l2", key=None).search([[0.1, 3.0]], k=5)[0].to_pylist() == [[2, 0, 1]]


def test_an_index_without_rows_answers_nothing():
    index = index_of("l2", table=PLACES.slice(0, 0))
    keys, distances = index.search([[1.0, 2.0], [3.0, 4.0]], k=3)
    assert len(index) == 0
    assert keys.to_pylist() == distances.to_pylist() == [[], []]
    assert keys.type == pa.list_(pa.string())


def test_fewer_answers_make_shorter_lists():
    class Approximate:
        shape = (3, 2)

        def search(self, queries, k):
            return np.array([[0.0, 4.0], [1.0, 0.0]], "f4"), np.array([[2, 0], [1, -1]])

    keys, distances = VectorIndex(Approximate(), metric="l2", keys=PLACES["name"].combine_chunks()).search(
        [[0.0, 0.0]] * 2, k=2
    )
    assert keys.to_pylist() == [["north", "origin"], ["east"]]
    assert distances.to_pylist() == [[0.0, 2.0], [1.0]]


def test_vectors_of_another_length_are_told():
    with pytest.raises(ValueError, match="vectors have 3 numbers, and those of the index 2"):
        index_of("l2").search([[1.0, 2.0, 3.0]], k=1)


def test_the_step_names_the_columns_that_are_wrong():
    batch, index = pa.record_batch({"place": [[0.0, 1.0]]}), index_of("l2")
    with pytest.raises(UnknownColumnError, match="step 'search' needs column 'palce'.*did you mean 'place'"):
        Search(column="palce", k=1, output="n", distances=None)(batch, index=index)
    with pytest.raises(PlanError, match="would overwrite column 'place'"):
        Search(column="place", k=1, output="place", distances=None)(batch, index=index)
    found = Search(column="place", k=1, output="n", distances=None)(batch, index=index)
    assert found.to_pydict() == {"place": [[0.0, 1.0]], "n": [["origin"]]}
