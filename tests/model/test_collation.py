import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headrace.model.collation import pad


@st.composite
def ragged(draw: st.DrawFn) -> list[np.ndarray]:
    dtype = draw(st.sampled_from(["u1", "i4", "i8", "f4", "f8", "?"]))
    inner = draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    return [draw(arrays.arrays(dtype, (length, *inner))) for length in lengths]


@given(ragged(), st.sampled_from(["left", "right"]), st.none() | st.integers(1, 8), st.booleans())
def test_what_the_mask_shows_is_what_was_there(rows: list[np.ndarray], side: str, multiple_of, as_objects) -> None:
    given_rows = rows
    if as_objects:
        given_rows = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            given_rows[i] = row
    padded, mask = pad(given_rows, side=side, multiple_of=multiple_of)
    longest = max(map(len, rows))
    assert padded.shape[:2] == mask.shape
    assert mask.shape[0] == len(rows)
    assert longest <= mask.shape[1] < longest + (multiple_of or 1)
    assert mask.shape[1] % (multiple_of or 1) == 0
    assert mask.dtype == np.int64
    for i, row in enumerate(rows):
        there = mask[i].astype(bool)
        assert there.sum() == len(row)
        assert (there[: len(row)] if side == "right" else there[len(there) - len(row) :]).all()
        if row.size:
            np.testing.assert_array_equal(padded[i][there], row)
            assert padded.dtype == row.dtype
        assert not padded[i][~there].any()


def test_matrices_are_padded_as_rows_are() -> None:
    matrix = np.arange(6, dtype=np.int32).reshape(2, 3)
    padded, mask = pad(matrix, multiple_of=4, value=9)
    assert padded.tolist() == [[0, 1, 2, 9], [3, 4, 5, 9]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]
    assert padded.dtype == np.int32


def test_a_value_that_the_dtype_cannot_hold_widens_it() -> None:
    padded, _ = pad([np.array([1, 2], np.int32), np.array([3], np.int32)], value=np.nan)
    assert padded.dtype == np.float64
    assert np.isnan(padded[1, 1])
    padded, _ = pad([np.array([1, 2], np.uint8), np.array([3], np.uint8)], value=-100)
    assert padded.tolist() == [[1, 2], [3, -100]]


def test_a_length_is_kept_to() -> None:
    padded, mask = pad([[1, 2], [3]], length=4, side="left")
    assert padded.tolist() == [[0, 0, 1, 2], [0, 0, 0, 3]]
    assert mask.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    with pytest.raises(ValueError, match=r"a row of length 3 does not fit into length=2"):
        pad([[1, 2, 3], [4]], length=2)


def test_what_has_no_length_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a row is null"):
        pad([np.array([1]), None])
    with pytest.raises(ValueError, match="a single number"):
        pad([1, 2])
    with pytest.raises(ValueError, match=r"differ in more than their lengths: by \(2,\) and \(3,\)"):
        pad([np.zeros((1, 2)), np.zeros((1, 3))])
