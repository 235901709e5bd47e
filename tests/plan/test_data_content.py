"""Plain data as bytes: the same content gives the same bytes, however it is laid out."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.plan.data_content import LEAVES, array_bytes, arrow_digest, file_digest, tensor_array


def test_arrays_count_by_their_values_not_by_their_layout():
    array = np.arange(6).reshape(2, 3)
    assert bytes(array_bytes(array)) == bytes(array_bytes(np.asfortranarray(array)))
    assert bytes(array_bytes(array)) != bytes(array_bytes(array.T))


def test_arrow_data_counts_by_its_values_not_by_its_chunks():
    whole = pa.table({"x": [1, 2, None]})
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert arrow_digest(whole) == arrow_digest(chunked)
    assert arrow_digest(whole) != arrow_digest(whole.slice(1))


@pytest.mark.parametrize(("one", "other"), [(0, -1), (2**64, 2**65), (0.0, -0.0), (True, False), ("a", "b")])
def test_different_leaves_have_different_bytes(one, other):
    assert LEAVES[type(one)](one) != LEAVES[type(other)](other)


def test_every_nan_is_the_same():
    assert LEAVES[float](float("nan")) == LEAVES[float](-float("nan"))


def test_what_is_no_tensor_has_no_tensor_array():
    assert tensor_array(np.zeros(3)) is None


def test_files_count_by_every_byte(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(3_000_000))
    before = file_digest(path)
    assert before == file_digest(str(path))
    with path.open("r+b") as file:
        file.seek(1_234_567)
        file.write(b"\1")
    assert file_digest(path) != before


def test_folders_count_by_names_and_contents(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "a").write_text("a")
        (tmp_path / name / "b").write_text("b")
    assert file_digest(tmp_path / "one") == file_digest(tmp_path / "two")
    (tmp_path / "two" / "b").rename(tmp_path / "two" / "c")
    assert file_digest(tmp_path / "one") != file_digest(tmp_path / "two")
