"""vectors: products with a vector, which read the matrix once where it lies (``gemv`` and ``ger``)."""

from __future__ import annotations

import numpy as np

from alpha.cpu.base import HostEngine
from alpha.cpu.figures import Figures
from alpha.cpu.gemm.algorithm import Algorithm, Call, finished
from alpha.cpu.gemm.problem import Product
from alpha.tensor import Tensor

BEGIN_CYCLES = 20_000
"""Cycles that Python takes to begin a product with a vector."""


class Vectors(Algorithm):
    """A matrix and a vector, or two vectors; one after another where there is a batch."""

    name = "vectors"
    title = "matrix times vector"

    def serves(self, problem: Product) -> bool:
        return problem.is_of_vectors

    def cycles(self, problem: Product, figures: Figures) -> float:
        read = max(problem.rows * problem.depth, problem.depth * problem.columns, problem.rows * problem.columns)
        return problem.batch * (BEGIN_CYCLES + read * problem.item / figures.l3_bytes_per_cycle)

    def describe(self, problem: Product, threads: int) -> str:
        return "one pass over the matrix"

    def run(self, engine: HostEngine, problem: Product, call: Call) -> Tensor:
        if call.out is None and len(call.x.shape) == len(call.y.shape) == 2:
            return finished(engine, call, _multiplied(engine, call.x, call.y))
        out = call.target(engine)
        for index in np.ndindex(out.shape[:-2]):
            found = _multiplied(engine, matrix_at(call.x, index), matrix_at(call.y, index))
            engine.copy(found, matrix_at(out, index))
        return finished(engine, call, out)


def _multiplied(engine: HostEngine, x: Tensor, y: Tensor) -> Tensor:
    """The product of two matrices, one of which is a vector."""
    (rows, depth), columns = x.shape, y.shape[1]
    # Not by view(), which checks that memory holds every element: with no rows or columns nothing is read.
    row = Tensor(x.storage, x.offset, (depth,), x.strides[1:], x.dtype)
    column = Tensor(y.storage, y.offset, (depth,), y.strides[:1], y.dtype)
    if columns == 1:
        return engine.gemv(x, column).strided(0, (rows, 1), (1, 1))
    if rows == 1:
        return engine.gemv(y, row, trans=True).strided(0, (1, columns), (columns, 1))
    left = Tensor(x.storage, x.offset, (rows,), x.strides[:1], x.dtype)
    return engine.ger(left, Tensor(y.storage, y.offset, (columns,), y.strides[1:], y.dtype))


def matrix_at(x: Tensor, index: tuple[int, ...]) -> Tensor:
    """The view of one matrix of a batch that is broadcast to more axes, or along axes of length 1."""
    batch = len(x.shape) - 2
    steps = zip(index[len(index) - batch :], x.shape[:batch], x.strides[:batch], strict=True)
    offset = x.offset + sum(i * step for i, length, step in steps if length > 1)
    return Tensor(x.storage, offset, x.shape[-2:], x.strides[-2:], x.dtype)
