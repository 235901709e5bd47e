"""Objects in files: what is large in them is mapped, the rest is as it was."""

import os
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace.engine.mapped import SMALL_BYTES, save


def again(obj, folder):
    saved = save(obj, folder / "object")
    return saved, saved.load()


def test_arrays_at_any_depth_are_mapped(tmp_path):
    large, strided = np.arange(10_000), np.arange(40_000).reshape(200, 200)[:, ::2]
    obj = {"one": [large, (strided, np.arange(3))], "fortran": np.asfortranarray(np.ones((100, 50)))}
    saved, found = again(obj, tmp_path)
    assert found["one"][0].tolist() == large.tolist()
    assert found["one"][1][0].tolist() == strided.tolist()
    assert found["one"][1][1].tolist() == [0, 1, 2]
    assert found["fortran"].flags.f_contiguous
    assert saved.mapped_bytes >= large.nbytes + 40_000
    assert saved.process_bytes < 3 * SMALL_BYTES + strided.nbytes


def test_what_is_mapped_cannot_be_written_to(tmp_path):
    _, found = again(np.zeros(10_000), tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": np.arange(10_000), "name": [f"row {i}" for i in range(10_000)]}),
        pd.DataFrame({"x": np.arange(10_000), "y": np.linspace(0, 1, 10_000)}),
    ],
    ids=["arrow", "pandas"],
)
def test_tables_are_mapped(table, tmp_path):
    saved, found = again(table, tmp_path)
    assert found.equals(table)
    assert saved.process_bytes < 4 * SMALL_BYTES < saved.mapped_bytes


def test_objects_without_arrays_are_each_process_s_own(tmp_path):
    saved, found = again({i: str(i) for i in range(1000)}, tmp_path)
    assert found[999] == "999"
    assert (saved.mapped_bytes, saved.places) == (0, ())


def test_functions_of_a_script_travel(tmp_path):
    offset = 3
    assert again(lambda x: x + offset, tmp_path)[1](1) == 4


def test_what_cannot_be_pickled_is_told(tmp_path):
    with pytest.raises(TypeError, match="lock"):
        save([threading.Lock()], tmp_path / "object")


def test_what_is_loaded_outlives_the_files(tmp_path):
    saved, found = again(np.arange(10_000), tmp_path)
    for name in os.listdir(saved.folder):
        os.unlink(os.path.join(saved.folder, name))
    assert int(found.sum()) == sum(range(10_000))
