"""Indexes as side inputs, and the search of them."""

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError, SideInputError
from headrace.handlers.packages import is_installed

WIDTH = 8


def vectors(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype("f4")


def dataset(matrix, prefix):
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])
    return hr.from_arrow(pa.table({"name": [f"{prefix}{i}" for i in range(len(matrix))], "vector": column}))


@pytest.mark.parametrize("isolation", ["auto", "process"])
def test_the_nearest_are_found_and_all_columns_kept(isolation):
    there, asked = vectors(500, 1), vectors(60, 2)
    index = dataset(there, "v").build_index("vector", key="name", metric="l2")
    found = dataset(asked, "q").search(index, column="vector", k=3, isolation=isolation).take(60)
    distances = np.sqrt(((asked[:, None] - there[None]) ** 2).sum(axis=2))
    order = np.argsort(distances, axis=1)[:, :3]
    assert [row["name"] for row in found] == [f"q{i}" for i in range(60)]
    assert [row["neighbors"] for row in found] == [[f"v{i}" for i in line] for line in order]
    assert np.array([row["distances"] for row in found]) == pytest.approx(
        np.take_along_axis(distances, order, 1), rel=1e-4
    )
    assert set(found[0]) == {"name", "vector", "neighbors", "distances"}


def test_a_dataset_is_searched_in_itself():
    items = dataset(vectors(50, 1), "v")
    found = items.search(items.build_index("vector"), column="vector", k=1, distances=None).take(50)
    assert [row["neighbors"] for row in found] == [[i] for i in range(50)]


def test_rows_without_a_vector_fail_alone(tmp_path):
    rows = [{"v": [1.0, 0.0]}, {"v": None}, {"v": [0.0, 1.0]}, {"v": [1.0]}]
    index = hr.from_items([{"v": [0.0, 2.0]}, {"v": [3.0, 0.0]}]).build_index("v")
    result = hr.from_items(rows).search(index, column="v", k=1).write_json(tmp_path / "out").run(on_error="dead_letter")
    assert (result.rows_written, result.failed) == (2, 2)
    assert [row["neighbors"] for row in hr.read_json(str(tmp_path / "out")).take(5)] == [[1], [0]]


def test_functions_may_ask_the_index_themselves():
    index = dataset(vectors(20, 1), "v").build_index("vector", key="name")
    found = dataset(vectors(20, 1), "q").map_batches(
        lambda batch, index: {"found": index.search(batch.column("vector"), k=1)[0]},
        side_inputs={"index": index},
        batch_format="pyarrow",
    )
    assert [row["found"] for row in found.take(20)] == [[f"v{i}"] for i in range(20)]


def test_vectors_that_a_model_makes_are_indexed():
    class Embed(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model):
            return np.stack([np.eye(4, dtype="f4")[len(text) % 4] for text in batch])

    def embedded(*texts):
        return hr.from_items([{"text": t} for t in texts]).run_inference(Embed(), inputs="text", output="embedding")

    index = embedded("a", "bb", "ccc").build_index("embedding", key="text")
    found = embedded("22", "333").search(index, column="embedding", k=1)
    assert [row["neighbors"] for row in found.take(2)] == [["bb"], ["ccc"]]


def test_rows_of_the_index_without_a_vector_end_the_run():
    index = hr.from_items([{"v": [1.0]}, {"v": None}]).build_index("v", name="places")
    with pytest.raises(SideInputError, match="'places' cannot be made.*column 'v', rows 0 to 1: a row has no vector"):
        hr.from_items([{"v": [1.0]}]).search(index, column="v").take(1)


def test_mistakes_are_told_where_they_are_written():
    items = dataset(vectors(3, 1), "v")
    index = items.build_index("vector")
    with pytest.raises(PlanError, match="takes what build_index"):
        items.search(items, column="vector")
    with pytest.raises(PlanError, match="takes what build_index"):
        items.search(items.broadcast(), column="vector")
    with pytest.raises(PlanError, match="k is 0"):
        items.search(index, column="vector", k=0)
    with pytest.raises(PlanError, match="kind is 'fais'"):
        items.build_index("vector", kind="fais")
    with pytest.raises(PlanError, match="metric is 'euclid'"):
        items.build_index("vector", metric="euclid")
    with pytest.raises(PlanError, match="needs column 'vectr'"):
        items.search(items.build_index("vectr"), column="vector").take(1)


@pytest.mark.skipif(is_installed("faiss"), reason="Faiss is installed")
def test_without_faiss_the_extra_is_named():
    with pytest.raises(hr.HeadraceError, match=r"pip install 'headrace\[faiss\]'"):
        dataset(vectors(3, 1), "v").build_index("vector", kind="faiss")
