"""Indexes of Faiss: built of vectors, and kept in files that all processes of a machine map."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.handlers.packages import require
from headrace.model.flat_vectors import FlatVectors
from headrace.model.loading import importing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headrace.model.vector_index import Vectors
    from headrace.model.vectors import Matrices

NEEDED_BY = "an index of kind 'faiss'"


class FaissVectors:
    """An index of Faiss as `build_index` uses it."""

    def __init__(self, index: Any) -> None:
        self.index = index

    @classmethod
    def of(
        cls, matrices: Matrices, *, products: bool, factory: str, parameters: str | None, train_rows: int
    ) -> Vectors:
        """Train and fill the index that `factory` describes in Faiss's own words, such as "IVF1024,Flat"."""
        if not matrices.rows:
            return FlatVectors.of(matrices, products=products)
        faiss = _faiss()
        metric = faiss.METRIC_INNER_PRODUCT if products else faiss.METRIC_L2
        index = faiss.index_factory(matrices.width, factory, metric)
        if not index.is_trained:
            index.train(matrices.sample(train_rows))
        for matrix in matrices:
            index.add(matrix)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
        return cls(index)

    @property
    def shape(self) -> tuple[int, int]:
        """How many vectors there are, and how many numbers each has."""
        return self.index.ntotal, self.index.d

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return what each query's nearest vectors measure, nearest first, and which they are."""
        measures, places = self.index.search(queries, k)
        return measures, places


def require_faiss() -> None:
    """Raise if Faiss is not installed.

    Raises:
        MissingDependencyError: it is not; names the pip command.
    """
    require("faiss", package="faiss-cpu", extra="faiss", needed_by=NEEDED_BY)


def write_index(index: Any, path: str) -> int:
    """Write an index to a file; return its size in bytes."""
    _faiss().write_index(index, path)
    return os.path.getsize(path)


def map_index(path: str) -> Any:
    """Return an index whose vectors stay in the file, mapped: processes that do so have them in memory once."""
    faiss = _faiss()
    return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)


def _faiss() -> Any:
    with importing():
        import faiss
    return faiss
