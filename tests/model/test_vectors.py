"""Columns of vectors as matrices."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.vectors import Matrices, vectors_of

VECTORS = [[1.0, 2.0], [3.0, 4.0], [0.0, 5.0]]


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2), pa.list_(pa.int16())]
)
@pytest.mark.parametrize("first", [0, 1])
def test_lists_of_every_kind_are_vectors(type_, first):
    column = pa.array([[int(x) for x in v] if pa.types.is_integer(type_.value_type) else v for v in VECTORS], type_)
    found = vectors_of(column.slice(first))
    assert found.dtype == np.float32
    assert found.tolist() == VECTORS[first:]


def test_directions_have_the_length_one():
    assert np.linalg.norm(vectors_of(pa.array(VECTORS), directions=True), axis=1) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([[1.0], None], "no vector"),
        ([[1.0], [1.0, 2.0]], "of one length"),
        ([1.0, 2.0], "of one length"),
        (["a"], "column of string"),
        ([[1.0], [float("nan")]], "not finite"),
        ([[1e39]], "not finite"),
        ([[1.0, None]], "not finite"),
    ],
)
def test_what_is_no_vector_is_told(values, why):
    with pytest.raises(ValueError, match=why):
        vectors_of(pa.array(values))


def test_zeros_have_no_direction():
    assert vectors_of(pa.array([[0.0]])).tolist() == [[0.0]]
    with pytest.raises(ValueError, match="use metric='l2'"):
        vectors_of(pa.array([[0.0]]), directions=True)


def test_a_sample_is_the_same_in_every_run_and_as_large_as_asked():
    column = pa.chunked_array([[[float(i)] for i in range(low, low + 50)] for low in range(0, 200, 50)])
    matrices = Matrices(column, name="x")
    sample = matrices.sample(30)
    assert sample.tolist() == matrices.sample(30).tolist()
    assert sample.shape == (30, 1)
    assert np.all(np.diff(sample[:, 0]) > 0)
    assert matrices.sample(500).shape == (200, 1)


def test_rows_of_another_length_are_named():
    with pytest.raises(ValueError, match=r"'x'.*first vector has 1 numbers, and that of row 2 has 2"):
        list(Matrices(pa.chunked_array([[[1.0], [2.0]], [[3.0, 4.0]]]), name="x"))
    with pytest.raises(ValueError, match="'x', rows 2 to 3: a row has no vector"):
        list(Matrices(pa.chunked_array([[[1.0], [2.0]], [[3.0], None]]), name="x"))
