"""Columns of vectors as matrices: of one length, without gaps, of 32-bit floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from headrace.records.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

Metric: TypeAlias = Literal["cosine", "l2", "inner_product"]


def vectors_of(column: pa.Array, *, directions: bool = False) -> NDArray[np.float32]:
    """Return a column as a matrix with a vector a row; `directions` are scaled to length 1.

    >>> import pyarrow as pa
    >>> vectors_of(pa.array([[3.0, 4.0]]), directions=True).tolist()
    [[0.6000000238418579, 0.800000011920929]]

    Raises:
        ValueError: some row is no vector, or not of the length of the others.
    """
    if column.null_count:
        raise ValueError("a row has no vector (it is null)")
    matrix = to_numpy(column)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf":
        raise ValueError(f"vectors are lists of numbers of one length, and this is a column of {column.type}")
    with np.errstate(over="ignore"):  # told below
        matrix = np.ascontiguousarray(matrix, dtype=np.float32)
    if not np.isfinite(matrix).all():
        raise ValueError("a vector has a number in it that is not finite (NaN, or too large)")
    if not directions:
        return matrix
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not lengths.all():
        raise ValueError("a vector is all zeros, and has no direction to be compared by; use metric='l2'")
    scaled: NDArray[np.float32] = matrix / lengths
    return scaled


class Matrices:
    """A column of vectors, as one matrix after another: each is as large as the column's chunk.

    >>> import pyarrow as pa
    >>> column = pa.chunked_array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]])
    >>> matrices = Matrices(column, name="embedding")
    >>> matrices.rows, matrices.width, [matrix.shape for matrix in matrices]
    (3, 2, [(1, 2), (2, 2)])
    """

    def __init__(self, column: pa.ChunkedArray, *, name: str, directions: bool = False) -> None:
        self._chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._name, self._directions = name, directions
        self.rows = len(column)
        self.width = self._matrix(self._chunks[0].slice(0, 1), 0).shape[1] if self._chunks else 0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        first = 0
        for chunk in self._chunks:
            matrix = self._matrix(chunk, first)
            if matrix.shape[1] != self.width:
                raise ValueError(
                    f"column {self._name!r}: the first vector has {self.width} numbers, and that of row {first} has"
                    f" {matrix.shape[1]}"
                )
            yield matrix
            first += len(chunk)

    def sample(self, rows: int) -> NDArray[np.float32]:
        """Return so many vectors, or all, drawn at random and the same in every run; in their order."""
        if rows >= self.rows:
            return np.concatenate(list(self))
        wanted = np.sort(np.random.default_rng(0).choice(self.rows, rows, replace=False))
        found, first = [], 0
        for matrix in self:
            low, high = np.searchsorted(wanted, [first, first + len(matrix)])
            found.append(matrix[wanted[low:high] - first])
            first += len(matrix)
        return np.concatenate(found)

    def _matrix(self, chunk: pa.Array, first: int) -> NDArray[np.float32]:
        try:
            return vectors_of(chunk, directions=self._directions)
        except ValueError as error:
            rows = f"rows {first} to {first + len(chunk) - 1}" if len(chunk) > 1 else f"row {first}"
            raise ValueError(f"column {self._name!r}, {rows}: {error}") from error
