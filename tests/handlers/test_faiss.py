"""Faiss: exact and approximate indexes as side inputs, in memory once for all processes."""

import re
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import SideInputError

pytestmark = pytest.mark.heavy


def vectors(rows, width, seed):
    return np.random.default_rng(seed).standard_normal((rows, width), dtype="f4")


def dataset(matrix):
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])
    return hr.from_arrow(pa.table({"id": np.arange(len(matrix)), "vector": column}))


def nearest(queries, there, k, metric):
    if metric == "l2":
        costs = ((queries[:, None] - there[None]) ** 2).sum(axis=2)
    elif metric == "cosine":
        costs = (
            1
            - (queries / np.linalg.norm(queries, axis=1, keepdims=True))
            @ (there / np.linalg.norm(there, axis=1, keepdims=True)).T
        )
    else:
        costs = -queries @ there.T
    return np.argsort(costs, axis=1)[:, :k].tolist()


@pytest.mark.parametrize("isolation", ["auto", "process"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner_product"])
def test_the_exact_index_answers_as_numpy_does(metric, isolation):
    there, asked = vectors(2000, 16, 1), vectors(100, 16, 2)
    index = dataset(there).build_index("vector", kind="faiss", metric=metric)
    flat = dataset(there).build_index("vector", metric=metric)
    rows = dataset(asked).search(index, column="vector", k=5, isolation=isolation)
    found = rows.search(flat, column="vector", k=5, output="exact", distances="measured").take(100)
    assert [row["neighbors"] for row in found] == nearest(asked, there, 5, metric)
    assert [row["exact"] for row in found] == [row["neighbors"] for row in found]
    assert np.array([row["distances"] for row in found]) == pytest.approx(
        np.array([row["measured"] for row in found]), abs=1e-3
    )


@pytest.mark.parametrize(
    ("factory", "parameters"), [("IVF32,Flat", "nprobe=24"), ("HNSW16", "efSearch=128"), ("SQ8", None)]
)
def test_approximate_indexes_find_nearly_all(factory, parameters):
    there, asked = vectors(5000, 16, 1), vectors(200, 16, 2)
    index = dataset(there).build_index(
        "vector", kind="faiss", metric="l2", factory=factory, parameters=parameters, train_rows=3000
    )
    found = dataset(asked).search(index, column="vector", k=10, isolation="process").take(200)
    exact = nearest(asked, there, 10, "l2")
    hits = sum(len(set(row["neighbors"]) & set(line)) for row, line in zip(found, exact, strict=True))
    assert hits / 2000 > 0.9


def test_few_answers_make_short_lists():
    index = dataset(vectors(400, 4, 1)).build_index("vector", kind="faiss", factory="IVF8,Flat", parameters="nprobe=1")
    found = dataset(vectors(20, 4, 2)).search(index, column="vector", k=300).take(20)
    assert all(0 < len(row["neighbors"]) == len(row["distances"]) < 300 for row in found)


def test_a_factory_that_faiss_does_not_know_is_told():
    index = dataset(vectors(10, 4, 1)).build_index("vector", kind="faiss", factory="Flatt")
    with pytest.raises(SideInputError, match="Flatt"):
        dataset(vectors(10, 4, 1)).search(index, column="vector").take(1)


def test_an_index_without_rows_answers_nothing():
    empty = dataset(vectors(3, 4, 1)).filter(lambda row: False)
    found = dataset(vectors(2, 4, 1)).search(empty.build_index("vector", kind="faiss"), column="vector").take(2)
    assert [row["neighbors"] for row in found] == [[], []]


def test_an_index_of_the_users_own_is_mapped_too():
    import faiss

    def build(table):
        index = faiss.IndexFlatL2(16)
        index.add(np.stack(table["vector"].to_numpy()))
        return {"index": index, "ids": table["id"].to_numpy()}

    def ask(batch, side):
        _, places = side["index"].search(np.ascontiguousarray(batch["vector"], dtype="f4"), 1)
        return {"id": batch["id"], "found": side["ids"][places[:, 0]]}

    there = vectors(2000, 16, 1)
    side = {"side": dataset(there).broadcast(build)}
    job = dataset(there).map_batches(ask, side_inputs=side, isolation="process", concurrency=2)
    (made,) = job.stats().side_inputs
    assert made.mapped_bytes > there.nbytes
    assert made.process_bytes < 20_000
    assert all(row["id"] == row["found"] for row in job.take(2000))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much of a mapping each process has")
@pytest.mark.timeout(600)
def test_one_index_of_200_000_vectors_serves_two_processes():
    there, asked, k = vectors(200_000, 384, 1), vectors(20_000, 384, 2), 10
    index = dataset(there).build_index("vector", kind="faiss", metric="cosine")
    searched = dataset(asked).search(index, column="vector", k=k, isolation="process", concurrency=2, batch_size=500)
    samples, found = [], []
    for batch in searched.select("id", "neighbors").iter_batches(batch_size=500, batch_format="pyarrow"):
        samples.append(index_memory())
        found.append(batch)
    rows = pa.Table.from_batches(found)
    assert rows["id"].to_pylist() == list(range(20_000))
    sample = np.random.default_rng(3).choice(20_000, 200, replace=False)
    answers = rows["neighbors"].take(pa.array(sample)).to_pylist()
    assert agreement(answers, nearest(asked[sample], there, k, "cosine")) > 0.999  # equal ones change places

    shared = [sum(pss for _, pss in one) for one in samples if sum(rss > 0.95 * there.nbytes for rss, _ in one) == 2]
    assert shared, f"the workers never had the whole index mapped at once: {samples}"
    assert max(shared) < 1.05 * there.nbytes


def agreement(answers, exact):
    return np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(answers, exact, strict=True)])


def index_memory():
    """Return RSS and PSS in bytes of each worker's mapped index; nothing where a worker ended meanwhile."""
    before, after = _index_memory(), _index_memory()
    lasting = all(after.get(pid, (0, 0))[0] >= rss for pid, (rss, _) in before.items())
    return list(before.values()) if lasting else []


def _index_memory():
    found = {}
    for child in psutil.Process().children():
        try:
            text = Path(f"/proc/{child.pid}/smaps").read_text()
        except OSError:  # it has ended
            continue
        sizes = [0, 0]
        for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
            if ".faiss" in mapping.partition("\n")[0]:
                for i, name in enumerate(("Rss", "Pss")):
                    sizes[i] += 1024 * int(re.search(rf"^{name}:\s+(\d+) kB", mapping, re.MULTILINE)[1])
        found[child.pid] = tuple(sizes)
    return found
