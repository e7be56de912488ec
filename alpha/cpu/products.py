"""ProductOperations: the CPU engine's products of matrices: BLAS's, and its own where an operand is a vector."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numba import int64

from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cpu import compile, planner, workers
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.compile import Entry
from alpha.cpu.conv.algorithm import Call
from alpha.cpu.conv.depthwise import STREAMED
from alpha.cpu.conv.problem import POINT, problem_of
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import matvec as kernels
from alpha.cpu.product_blocks import (
    BLAS_MACS,
    BLAS_VECTOR,
    BY_ROWS,
    X_BY_COLUMNS,
    Y_BY_COLUMNS,
    blocks_of,
    runs,
    view,
)
from alpha.errors import ShapeError
from alpha.tensor import Tensor

PARALLEL_BYTES = 256 << 10
"""Bytes of a matrix from which several threads share a product: below, a second one would come too late."""

TASKS_PER_THREAD = 8
"""Several, so that a thread whose core is busy with something else leaves little to wait for."""

CACHED_BYTES, CACHED_TASKS_PER_THREAD = 4 << 20, 2
"""A matrix of fewer bytes stays in the caches, and has fewer tasks: a thread then often draws what its cache holds."""

ROWS = max(kernels.DOT_ROWS, kernels.UPDATE_ROWS)
"""Most rows that an iteration of a kernel works on at once."""

MIN_TASK_COLUMNS, MAX_TASK_COLUMNS = 128, 2048
"""Columns per task of the transposed product: long runs of memory, and sums that stay in the L1 cache."""


class ProductOperations(ArrayOperations):
    """Products. One with a vector reads the matrix once, in place where rows or columns are dense.

    Two matrices are multiplied by NumPy's BLAS where they are small, else by BLAS in blocks (``product_blocks``) or by
    the convolutions' kernels, whichever is faster: the bits never depend on the number of threads.
    """

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        if x.ndim != 2 or y.ndim != 2:
            return self._batched(x, y)
        (rows, depth), columns = x.shape, y.shape[1]
        if 1 not in (rows, depth, columns):
            nbytes = rows * columns * x.dtype.itemsize
            out = Tensor(self.allocate(nbytes), 0, (rows, columns), (columns or 1, 1), x.dtype)
            if rows * depth * columns <= BLAS_MACS:
                x, y = self._dense_one_way(x), self._dense_one_way(y)
                with np.errstate(all="ignore"):  # infinities and NaN are values here
                    np.matmul(self.array(x), self.array(y), out=self.array(out))
            elif not self._in_blocks(x, y, out):
                self._convolved(x, y, out)
            return out
        # Not by view(), which checks that memory holds every element: with no rows or columns nothing is read.
        row = Tensor(x.storage, x.offset, (depth,), x.strides[1:], x.dtype)
        column = Tensor(y.storage, y.offset, (depth,), y.strides[:1], y.dtype)
        if columns == 1:
            return self.gemv(x, column).view(0, (rows, 1), (1, 1))
        if rows == 1:
            return self.gemv(y, row, trans=True).view(0, (1, columns), (columns, 1))
        left = Tensor(x.storage, x.offset, (rows,), x.strides[:1], x.dtype)
        return self.ger(left, Tensor(y.storage, y.offset, (columns,), y.strides[1:], y.dtype))

    def _batched(self, x: Tensor, y: Tensor) -> Tensor:
        """Products of batches: each is computed as it would be alone, but for vectors that BLAS gives to one thread."""
        (rows, depth), columns = x.shape[-2:], y.shape[-1]
        vectors = 1 in (rows, columns)
        if rows * depth * columns <= (BLAS_VECTOR if vectors else BLAS_MACS):
            return super().matmul(x, y)
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        out = self.empty((*batch, rows, columns), x.dtype)
        if out.numel() == 0 or (not vectors and self._in_blocks(x, y, out)):
            return out
        for index in np.ndindex(batch):
            left, right, target = (_matrix_at(t, index) for t in (x, y, out))
            if vectors:
                self.copy(self.matmul(left, right), target)
            else:
                self._convolved(left, right, target)
        return out

    def _in_blocks(self, x: Tensor, y: Tensor, out: Tensor) -> bool:
        """Computes the product, or those of batches, by BLAS in blocks; returns False where that would be slower."""
        limits = Y_BY_COLUMNS if _by_columns(y) else X_BY_COLUMNS if _by_columns(x) else BY_ROWS
        (rows, depth), columns = x.shape[-2:], y.shape[-1]
        blocks = blocks_of(rows, depth, columns, limits)
        if blocks is None:
            return False
        x, y = self._dense_one_way(x), self._dense_one_way(y)
        whole = 0, 1, depth
        with np.errstate(all="ignore"):  # infinities and NaN are values here
            for down, across in product(runs(rows, blocks.rows), runs(columns, blocks.columns)):
                left, right, target = view(x, down, whole), view(y, whole, across), view(out, down, across)
                np.matmul(self.array(left), self.array(right), out=self.array(target))
        return True

    def _dense_one_way(self, x: Tensor) -> Tensor:
        """Matrices whose rows or columns are dense, as BLAS reads them; a copy where neither are."""
        return x if _by_rows(x) or _by_columns(x) else self.dense(x, range(x.ndim))

    def _convolved(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """The product as a convolution of maps of one pixel, or as its gradient: whichever reads them as they lie."""
        if y.strides[0] == 1 and y.strides[1] != 1:
            self._convolve_pixels(FORWARD, x, _transposed(y), out)
        elif x.strides[0] == 1 and x.strides[1] != 1:
            self._convolve_pixels(WEIGHT_GRAD, y, _transposed(x), out)
        else:
            self._convolve_pixels(INPUT_GRAD, x, y, out)

    def _convolve_pixels(self, operator: str, source: Tensor, other: Tensor, out: Tensor) -> None:
        """One of the convolutions' operators on matrices as images of one pixel, whose rows are images."""
        source = source if _by_rows(source) else self.dense(source, (0, 1))
        other = self.dense(other, (0, 1))  # by itself packing would copy it outside the pool
        call = Call(_pixels(source), _pixels(other), _pixels(out), POINT, reused=False)
        images = {FORWARD: (call.source, call.out), INPUT_GRAD: (call.out, call.source)}
        problem = problem_of(operator, *images.get(operator, (call.source, call.other)), POINT, 1)
        planner.choose(problem, packs=True).run(self, problem, call)

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
        entry, task, threads = _product(rows, columns, dtype, trans, self.threads)
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
        entry, task, threads = _update(rows, columns, dtype, self.threads)
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
        """The vector with its elements next to each other in memory."""
        return x if x.strides[0] == 1 else self.dense(x, (0,))


def _matrix_at(x: Tensor, index: tuple[int, ...]) -> Tensor:
    """The view of one matrix of a batch that is broadcast to more axes, or along axes of length 1."""
    batch = len(x.shape) - 2
    steps = zip(index[len(index) - batch :], x.shape[:batch], x.strides[:batch], strict=True)
    offset = x.offset + sum(i * step for i, length, step in steps if length > 1)
    return Tensor(x.storage, offset, x.shape[-2:], x.strides[-2:], x.dtype)


def _pixels(x: Tensor) -> Tensor:
    """A matrix as images of one pixel, or as filters of one tap: rows are images, columns channels."""
    (rows, columns), (step, apart) = x.shape, x.strides
    return Tensor(x.storage, x.offset, (rows, 1, 1, columns), (step, step, step, apart), x.dtype)


def _by_rows(x: Tensor) -> bool:
    """Whether a matrix's rows are dense, and runs of memory of their own."""
    return x.strides[-1] == 1 and x.strides[-2] >= x.shape[-1]


def _by_columns(x: Tensor) -> bool:
    """Whether only a matrix's columns are dense, and runs of memory of their own."""
    return x.strides[-2] == 1 and x.strides[-1] != 1 and x.strides[-1] >= x.shape[-2]


def _transposed(x: Tensor) -> Tensor:
    """A view of the transposed matrix."""
    return Tensor(x.storage, x.offset, x.shape[::-1], x.strides[::-1], x.dtype)


def _fits(matrix: Tensor | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> bool:
    return matrix is None or (matrix.shape == shape and matrix.dtype == dtype)


def _check_vectors(like: Tensor, *vectors: tuple[Tensor | None, int]) -> None:
    """Checks lengths and dtypes of vectors: the kernels follow raw pointers."""
    for vector, length in vectors:
        if vector is not None and (vector.shape != (length,) or vector.dtype != like.dtype):
            raise ShapeError(
                f"[gemv] expected a vector ({length},) of {like.dtype}, got {vector.shape} of {vector.dtype}"
            )


@lru_cache(maxsize=8192)
def _product(rows: int, columns: int, dtype: np.dtype[Any], trans: bool, threads: int) -> tuple[Entry, int, int]:
    """The kernel of a matrix-vector product, rows or columns per task, and how many threads share the tasks."""
    kernel = kernels.vector_matrix if trans else kernels.matrix_vector
    return _entry(kernel, dtype, 9), *_tasks(rows, columns, dtype.itemsize, trans, threads)


@lru_cache(maxsize=8192)
def _update(rows: int, columns: int, dtype: np.dtype[Any], threads: int) -> tuple[Entry, int, int]:
    """The kernel of an update of rank one, rows per task, and how many threads share the tasks."""
    return _entry(kernels.rank_one, dtype, 11), *_tasks(rows, columns, dtype.itemsize, False, threads)


def _tasks(rows: int, columns: int, item: int, by_columns: bool, threads: int) -> tuple[int, int]:
    """Rows per task, a multiple of ROWS, or columns per task; and how many threads have a task to do."""
    length = columns if by_columns else rows
    if rows * columns * item < PARALLEL_BYTES or threads == 1:
        return max(1, length), 1
    if by_columns:
        task = min(max(columns // threads, MIN_TASK_COLUMNS), MAX_TASK_COLUMNS)
    else:
        shares = threads * (TASKS_PER_THREAD if rows * columns * item >= CACHED_BYTES else CACHED_TASKS_PER_THREAD)
        task = max(ROWS, rows // shares // ROWS * ROWS)
    return task, min(threads, -(-length // task))


@cache
def _entry(kernel: Any, dtype: np.dtype[Any], integers: int) -> Entry:
    """A kernel for numbers of a dtype, with ``integers`` integers after its first argument."""
    return compile.entry(kernel, dtype, *[int64] * integers)
