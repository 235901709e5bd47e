"""An index of vectors with the keys of their rows, how it is built of a table, and the step that asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError, UnknownColumnError
from headrace.model.vectors import Matrices, vectors_of
from headrace.records.plain import array_of_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headrace.model.vectors import Metric


class Vectors(Protocol):
    """Vectors that can be searched: what a kind of index has to be."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many vectors there are, and how many numbers each has."""
        ...

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return squared distances or inner products of each query's nearest, nearest first, and which they are.

        -1 stands where an approximate index has found fewer than `k`.
        """
        ...


class VectorIndex:
    """What `Dataset.build_index` makes, as functions get it that name it in their `side_inputs=`.

    >>> from headrace.model.flat_vectors import FlatVectors
    >>> vectors = FlatVectors(np.eye(3, dtype=np.float32), products=True)
    >>> index = VectorIndex(vectors, metric="cosine", keys=pa.array(["x", "y", "z"]))
    >>> names, distances = index.search([[0.0, 2.0, 0.0]], k=1)
    >>> names.to_pylist(), distances.to_pylist()
    ([['y']], [[0.0]])
    """

    def __init__(self, vectors: Vectors, *, metric: Metric, keys: pa.Array | None = None) -> None:
        """`keys` are those of the rows; None: their numbers."""
        self.vectors, self.metric, self.keys = vectors, metric, keys

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def search(self, queries: Any, *, k: int) -> tuple[pa.ListArray, pa.ListArray]:
        """Return the keys of each query's `k` nearest vectors, nearest first, and their distances.

        `queries` is a matrix, a list of vectors or an Arrow column of them. Distances are 1 − cosine, Euclidean
        distances, or (with "inner_product") the products themselves, largest first.

        Raises:
            ValueError: the queries are no vectors of the index's length.
        """
        column = queries if isinstance(queries, pa.Array) else pa.array(list(queries))
        matrix = vectors_of(column, directions=self.metric == "cosine")
        rows, width = self.vectors.shape
        if rows == 0:
            nothing = np.zeros((len(matrix), 0))
            return self._lists(nothing.astype(np.float32), nothing.astype(np.int64))
        if matrix.shape[1] != width:
            raise ValueError(f"vectors have {matrix.shape[1]} numbers, and those of the index {width}")
        measures, places = self.vectors.search(matrix, min(k, rows))
        return self._lists(self._distances(measures), places)

    def _distances(self, measures: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.metric == "inner_product":
            return measures
        distances: NDArray[np.float32] = np.maximum(measures if self.metric == "l2" else 1 - measures, 0)
        return np.sqrt(distances) if self.metric == "l2" else distances

    def _lists(self, distances: NDArray[np.float32], places: NDArray[np.int64]) -> tuple[pa.ListArray, pa.ListArray]:
        there = places >= 0
        offsets = pa.array(np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32))
        found = array_of_numbers(places[there])
        keys = found if self.keys is None else self.keys.take(found)
        return (
            pa.ListArray.from_arrays(offsets, keys),
            pa.ListArray.from_arrays(offsets, array_of_numbers(distances[there])),
        )


class IndexBuilder:
    """Builds a `VectorIndex` of a table; the `build` of a side input."""

    def __init__(self, make: Callable[..., Vectors], *, column: str, key: str | None, metric: Metric) -> None:
        """`make` gathers `Matrices`; with `products=True` for inner products."""
        self.make, self.column, self.key, self.metric = make, column, key, metric

    def __call__(self, table: pa.Table) -> VectorIndex:
        """Build the index.

        Raises:
            ValueError: the column has rows that are no vectors of one length.
        """
        matrices = Matrices(table.column(self.column), name=self.column, directions=self.metric == "cosine")
        keys = None if self.key is None else _in_one(table.column(self.key))
        return VectorIndex(self.make(matrices, products=self.metric != "l2"), metric=self.metric, keys=keys)


class Search:
    """Adds the nearest neighbors of each row of a batch."""

    def __init__(self, *, column: str, k: int, output: str, distances: str | None) -> None:
        self.column, self.k, self.output, self.distances = column, k, output, distances

    def __call__(self, batch: pa.RecordBatch, *, index: VectorIndex) -> pa.RecordBatch:
        """Return the batch with two columns more.

        Raises:
            UnknownColumnError: the column is not there.
            ValueError: a row is no vector of the index's length.
        """
        names = batch.schema.names
        if self.column not in names:
            raise UnknownColumnError(self.column, names, step="search")
        for name in (self.output, self.distances):
            if name in names:
                raise PlanError(f"search() would overwrite column {name!r}; pass another name as output= or distances=")
        neighbors, distances = index.search(batch.column(self.column), k=self.k)
        batch = batch.append_column(self.output, neighbors)
        return batch if self.distances is None else batch.append_column(self.distances, distances)


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
