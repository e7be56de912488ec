"""ProductOperations: the CPU engine's products of matrices: BLAS's, and its own where an operand is a vector."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import float32, float64, int64

from alpha.cpu import compile, workers
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.compile import Entry
from alpha.cpu.conv.depthwise import STREAMED
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import matvec as kernels
from alpha.errors import ShapeError
from alpha.tensor import Tensor

ALONE = 256 << 10
"""Bytes of a matrix from which a second thread takes part: below, it comes too late."""

TASKS = 8
"""Tasks a thread, so that one whose core is busy elsewhere leaves little to wait for."""

NEAR, NEAR_TASKS = 4 << 20, 2
"""Bytes of a matrix below which there are fewer: threads that draw the same parts again find them in their caches."""

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
        # A row of no rows is not read: these are no views that the memory must hold.
        row = Tensor(x.storage, x.offset, (depth,), x.strides[1:], x.dtype)
        column = Tensor(y.storage, y.offset, (depth,), y.strides[:1], y.dtype)
        if columns == 1:
            return self.gemv(x, column).view(0, (rows, 1), (1, 1))
        if rows == 1:
            return self.gemv(y, row, trans=True).view(0, (1, columns), (columns, 1))
        left = Tensor(x.storage, x.offset, (rows,), x.strides[:1], x.dtype)
        return self.ger(left, Tensor(y.storage, y.offset, (columns,), y.strides[1:], y.dtype))

    def gemv(self, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
        rows, columns = a.shape
        length, depth = (columns, rows) if trans else (rows, columns)
        dtype = a.dtype
        if x.shape != (depth,) or x.dtype != dtype or plus is not None:
            _check_vectors(a, (x, depth), (plus, length))
        if a.strides[1] != 1:
            if a.strides[0] == 1:
                a, trans = a.view(a.offset, a.shape[::-1], a.strides[::-1]), not trans
                rows, columns = columns, rows
            else:
                a = self.dense(a, (0, 1))
        item, step = dtype.itemsize, a.strides[0]
        storage = self.allocate(length * item)
        x = self._vector(x)
        added = 0 if plus is None else (plus := self._vector(plus)).address
        entry, task, threads = _product(rows, columns, item, trans, self.threads)
        workers.WORKERS.enter(
            entry,
            threads,
            (1.0, item, rows, columns, task, a.address, step * item, x.address, added, storage.address),
        )
        return Tensor(storage, 0, (length,), (1,), dtype)

    def ger(
        self, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        shape = rows, columns = x.shape[0], y.shape[0]
        dtype = x.dtype
        if (
            len(x.shape) + len(y.shape) != 2
            or y.dtype != dtype
            or not (_fits(a, shape, dtype) and (out is a or _fits(out, shape, dtype)))
        ):
            raise ShapeError(
                f"[ger] expected vectors ({rows},) and ({columns},) and matrices {shape}, all of {dtype}, got "
                + ", ".join(f"{given.shape} of {given.dtype}" for given in (x, y, a, out) if given is not None)
            )
        if a is not None and a.strides[1] != 1:
            a = self.dense(a, (0, 1))
        item = dtype.itemsize
        target = out
        if target is None or target.strides[1] != 1:
            target = Tensor(self.allocate(rows * columns * item), 0, shape, (columns or 1, 1), dtype)
        x, y = self._vector(x), self._vector(y)
        nbytes = rows * columns * item
        streamed = (
            nbytes >= STREAMED
            and (a is None or a is not out)
            and (target.strides[0] * item | target.address) % ISA.bytes == 0
        )
        entry, task, threads = _update(rows, columns, item, self.threads)
        workers.WORKERS.enter(
            entry,
            threads,
            (
                alpha, item, rows, columns, task,
                0 if a is None else a.address, 0 if a is None else a.strides[0] * item, x.address, y.address,
                target.address, target.strides[0] * item, streamed,
            ),
        )  # fmt: skip
        if out is not None and target is not out:
            self.copy(target, out)
            return out
        return target

    def _vector(self, x: Tensor) -> Tensor:
        """x with its elements side by side."""
        return x if x.strides[0] == 1 else self.dense(x, (0,))


def _fits(matrix: Tensor | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> bool:
    return matrix is None or (matrix.shape == shape and matrix.dtype == dtype)


def _check_vectors(like: Tensor, *vectors: tuple[Tensor | None, int]) -> None:
    """Vectors of the lengths and the dtype that the kernels trust: they follow raw pointers."""
    for vector, length in vectors:
        if vector is not None and (vector.shape != (length,) or vector.dtype != like.dtype):
            raise ShapeError(
                f"[gemv] expected a vector ({length},) of {like.dtype}, got {vector.shape} of {vector.dtype}"
            )


@lru_cache(maxsize=8192)
def _product(rows: int, columns: int, item: int, trans: bool, threads: int) -> tuple[Entry, int, int]:
    """The kernel of a product, the rows or columns of a task, and how many threads share the tasks."""
    kernel = kernels.vector_matrix if trans else kernels.matrix_vector
    return _entry(kernel, item, 9), *_tasks(rows, columns, item, trans, threads)


@lru_cache(maxsize=8192)
def _update(rows: int, columns: int, item: int, threads: int) -> tuple[Entry, int, int]:
    """The same of an update of rank one."""
    return _entry(kernels.rank_one, item, 11), *_tasks(rows, columns, item, False, threads)


def _tasks(rows: int, columns: int, item: int, by_columns: bool, threads: int) -> tuple[int, int]:
    """Rows of a task, in whole turns of the kernels, or its columns; and how many threads find one."""
    length = columns if by_columns else rows
    if rows * columns * item < ALONE or threads == 1:
        return max(1, length), 1
    if by_columns:
        task = min(max(columns // threads, STRIP[0]), STRIP[1])
    else:
        shares = threads * (TASKS if rows * columns * item >= NEAR else NEAR_TASKS)
        task = max(ROWS, rows // shares // ROWS * ROWS)
    return task, min(threads, -(-length // task))


@cache
def _entry(kernel: Any, item: int, integers: int) -> Entry:
    """A kernel for numbers of so many bytes, and so many integers after the first argument."""
    return compile.entry(kernel, float32 if item == 4 else float64, *[int64] * integers)
