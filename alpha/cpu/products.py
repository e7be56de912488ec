"""ProductOperations: the CPU engine's products of matrices: BLAS's, and its own where an operand is a vector."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.kernels import matvec as kernels
from alpha.errors import ShapeError
from alpha.tensor import Tensor

ALONE = 256 << 10
"""Bytes of a matrix from which a second thread takes part: below, it comes too late."""

TASKS = 8
"""Tasks a thread, so that one whose core is busy elsewhere leaves little to wait for."""

ROWS = max(kernels.DOT_ROWS, kernels.UPDATE_ROWS)
"""Rows that a turn of a kernel works on at once."""

STRIP = 128, 2048
"""Least and most columns of a task of the transposed product: long runs of memory, and sums that stay in the cache."""


class ProductOperations(ArrayOperations):
    """A vector's products read every element of the matrix once, as it lies; without dense rows or columns a copy."""

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        if x.ndim != 2 or y.ndim != 2 or 1 not in (x.shape[0], x.shape[1], y.shape[1]):
            return super().matmul(x, y)
        (rows, depth), columns = x.shape, y.shape[1]
        row = x.view(x.offset, (depth,), x.strides[1:])
        column = y.view(y.offset, (depth,), y.strides[:1])
        if columns == 1:
            return self.gemv(x, column).view(0, (rows, 1), (1, 1))
        if rows == 1:
            return self.gemv(y, row, trans=True).view(0, (1, columns), (columns, 1))
        return self.ger(x.view(x.offset, (rows,), x.strides[:1]), y.view(y.offset, (columns,), y.strides[1:]))

    def gemv(self, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
        rows, columns = a.shape
        length, depth = (columns, rows) if trans else (rows, columns)
        dtype = a.dtype
        if x.shape != (depth,) or x.dtype != dtype or plus is not None:
            _check_vectors("gemv", a, (x, depth), (plus, length))
        if a.strides[1] != 1:
            if a.strides[0] == 1:
                a, trans = a.view(a.offset, a.shape[::-1], a.strides[::-1]), not trans
                rows, columns = columns, rows
            else:
                a = self.dense(a, (0, 1))
        item = dtype.itemsize
        out = Tensor(self.allocate(length * item), 0, (length,), (1,), dtype)
        x = self._vector(x)
        added = 0 if plus is None else (plus := self._vector(plus)).address
        kernel = kernels.vector_matrix if trans else kernels.matrix_vector
        task, tasks = _tasks(rows, columns, item, trans, self.threads)
        self.launch(
            kernel, _ONE[item], item, rows, columns, task, a.address, a.strides[0] * item, x.address,
            added, out.storage.address, tasks=tasks,
        )  # fmt: skip
        return out

    def ger(
        self, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        shape = x.shape[0], y.shape[0]
        _check_vectors("ger", x, (y, shape[1]))
        for matrix in (a,) if out is a else (a, out):
            if matrix is not None:
                if matrix.shape != shape:
                    raise ShapeError(f"[ger] expected matrices {shape} as the vectors have it, got {matrix.shape}")
                _check_vectors("ger", matrix, (x, shape[0]))
        target = out if out is not None and out.strides[1] == 1 else self.empty(shape, x.dtype)
        if a is not None and a.strides[1] != 1:
            a = self.dense(a, (0, 1))
        x, y = self._vector(x), self._vector(y)
        rows, columns = target.shape
        item = x.dtype.itemsize
        task, tasks = _tasks(rows, columns, item, False, self.threads)
        self.launch(
            kernels.rank_one, _tag(x, alpha), item, rows, columns, task,
            0 if a is None else a.address, 0 if a is None else a.strides[0] * item, x.address, y.address,
            target.address, target.strides[0] * item, tasks=tasks,
        )  # fmt: skip
        if out is not None and target is not out:
            self.copy(target, out)
            return out
        return target

    def _vector(self, x: Tensor) -> Tensor:
        """x with its elements side by side."""
        return x if x.strides[0] == 1 else self.dense(x, (0,))


@lru_cache(maxsize=8192)
def _tasks(rows: int, columns: int, item: int, by_columns: bool, threads: int) -> tuple[int, int]:
    """Rows of a task, in whole turns of the kernels, or its columns; and how many tasks, which threads share."""
    length = columns if by_columns else rows
    if rows * columns * item < ALONE or threads == 1:
        return max(1, length), 1
    if by_columns:
        task = min(max(columns // threads, STRIP[0]), STRIP[1])
    else:
        task = max(ROWS, rows // (TASKS * threads) // ROWS * ROWS)
    return task, -(-length // task)


def _check_vectors(function: str, like: Tensor | None, *vectors: tuple[Tensor | None, int]) -> None:
    """Vectors of the lengths and the dtype that the kernels trust: they follow raw pointers."""
    for vector, length in vectors:
        if like is not None and vector is not None and (vector.shape != (length,) or vector.dtype != like.dtype):
            raise ShapeError(
                f"[{function}] expected a vector ({length},) of {like.dtype}, got {vector.shape} of {vector.dtype}"
            )


_ONE = {4: np.float32(1), 8: np.float64(1)}
"""``_tag`` of 1, by the size of a number."""


def _tag(x: Tensor, value: float) -> np.floating:
    """The kernels' first argument, whose type is that of the numbers."""
    return np.float32(value) if x.dtype.itemsize == 4 else np.float64(value)
