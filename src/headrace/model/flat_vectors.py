"""Exact search by comparing with every vector, in numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.model.vectors import Matrices

QUERIES_AT_ONCE, VECTORS_AT_ONCE = 512, 16_384


class FlatVectors:
    """A matrix of vectors, compared with all queries piece by piece.

    >>> flat = FlatVectors(np.array([[1, 0], [0, 1]], dtype=np.float32), products=True)
    >>> flat.search(np.array([[2, 1]], dtype=np.float32), 2)[1].tolist()
    [[0, 1]]
    """

    def __init__(self, matrix: NDArray[np.float32], *, products: bool) -> None:
        """`products` asks for the largest inner products, else for the smallest squared distances."""
        self.matrix, self.products = matrix, products
        self.squares = None if products else np.einsum("ij,ij->i", matrix, matrix)

    @classmethod
    def of(cls, matrices: Matrices, *, products: bool) -> FlatVectors:
        """Gather the vectors."""
        matrix, first = np.empty((matrices.rows, matrices.width), dtype=np.float32), 0
        for part in matrices:
            matrix[first : first + len(part)] = part
            first += len(part)
        return cls(matrix, products=products)

    @property
    def shape(self) -> tuple[int, int]:
        """How many vectors there are, and how many numbers each has."""
        rows, width = self.matrix.shape
        return rows, width

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return what each query's `k` nearest vectors measure, nearest first, and which they are."""
        found = [
            self._nearest(queries[first : first + QUERIES_AT_ONCE], k)
            for first in range(0, len(queries), QUERIES_AT_ONCE)
        ]
        return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])

    def _nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        costs = np.empty((len(queries), 0), dtype=np.float32)
        places = np.empty((len(queries), 0), dtype=np.int64)
        for first in range(0, len(self.matrix), VECTORS_AT_ONCE):
            fresh = self._costs(queries, slice(first, first + VECTORS_AT_ONCE))
            at = _smallest(fresh, k)
            costs = np.concatenate([costs, np.take_along_axis(fresh, at, 1)], axis=1)
            places = np.concatenate([places, at + first], axis=1)
            best = _smallest(costs, k)
            costs, places = np.take_along_axis(costs, best, 1), np.take_along_axis(places, best, 1)
        measures = self._measures(queries, places)
        order = np.argsort(-measures if self.products else measures, axis=1, kind="stable")
        return np.take_along_axis(measures, order, 1), np.take_along_axis(places, order, 1)

    def _costs(self, queries: NDArray[np.float32], part: slice) -> NDArray[np.float32]:
        """Return what orders the vectors of a part as they should be; the least is the nearest."""
        products = queries @ self.matrix[part].T
        costs: NDArray[np.float32] = -products if self.squares is None else self.squares[part] - 2 * products
        return costs

    def _measures(self, queries: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Measure the few that were found without the differences of large numbers that found them."""
        measures = np.empty(places.shape, dtype=np.float32)
        for column, found in enumerate(places.T):
            vectors = self.matrix[found]
            one, other = (queries, vectors) if self.products else (queries - vectors, queries - vectors)
            measures[:, column] = np.einsum("ij,ij->i", one, other)
        return measures


def _smallest(costs: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    if costs.shape[1] <= k:
        return np.broadcast_to(np.arange(costs.shape[1]), costs.shape)
    found: NDArray[np.int64] = np.argpartition(costs, k - 1, axis=1)[:, :k]
    return found
