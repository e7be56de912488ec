"""Systems of equations whose matrix is triangular, or given by its Cholesky factor; gradients of any order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import broadcast_shapes, flag
from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.functions.elimination import triangular_solved
from alpha.functions.linalg import matmul
from alpha.functions.operands import call
from alpha.functions.shape import expand
from alpha.functions.solving import adjoint_of, check_matrix, check_together, identity, on_host, swapped
from alpha.tensor import Tensor

__all__ = ["cholesky_inverse", "cholesky_solve", "triangular_solve"]

Array = np.ndarray[Any, Any]


class SolutionAndMatrix(NamedTuple):
    """A solution, and the matrix of the system."""

    solution: Tensor
    cloned_coefficient: Tensor


class SolveTriangular(Function):
    """X of A X = B, of which one triangle of A is read."""

    def forward(self, a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
        self.upper, self.unit = upper, unit
        x: Tensor = on_host("solve_triangular", lambda a, b: triangular_solved(a, b, upper, unit), a, b)
        self.save(a, x)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, x = self.saved
        db: Tensor = call(SolveTriangular, adjoint_of(a), grad, not self.upper, self.unit)
        n = a.shape[-1]
        mask = np.triu(np.ones((n, n)), int(self.unit)) if self.upper else np.tril(np.ones((n, n)), -int(self.unit))
        return -matmul(db, adjoint_of(x)) * a.engine.from_numpy(mask.astype(a.dtype)), db


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B (of X A = B where not ``left``), A being triangular: the other triangle is not read.

    A zero on the diagonal gives infinities and NaN.

    Args:
        A: (..., N, N).
        B: (..., N, K); batch axes broadcast.
        upper: which triangle.
        unitriangular: take 1 for the diagonal.
    """
    name = "solve_triangular"
    check_matrix(name, A, square=True)
    check_matrix(name, B)
    upper, left, unit = flag(name, "upper", upper), flag(name, "left", left), flag(name, "unitriangular", unitriangular)
    check_together(name, A, B)
    if not left:
        return swapped(solve_triangular(swapped(A), swapped(B), upper=not upper, unitriangular=unit))
    n = A.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with as many rows as A, got A: {A.shape} and B: {B.shape}")
    batch = broadcast_shapes(name, [A.shape[:-2], B.shape[:-2]])
    found: Tensor = call(SolveTriangular, expand(A, (*batch, n, n)), expand(B, (*batch, n, B.shape[-1])), upper, unit)
    return found


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> SolutionAndMatrix:
    """X of A X = b with a triangular A, and A: ``linalg.solve_triangular`` in PyTorch's older form."""
    transpose = flag("triangular_solve", "transpose", transpose)
    matrix, upper = (swapped(A), not upper) if transpose else (A, upper)
    return SolutionAndMatrix(solve_triangular(matrix, b, upper=upper, unitriangular=unitriangular), A.clone())


class CholeskySolve(Function):
    """X of A X = B, given a factor of A. As in PyTorch, the factor's gradient is not cut to its triangle."""

    def forward(self, b: Tensor, factor: Tensor, upper: bool) -> Tensor:
        self.upper = upper

        def compute(b: Array, factor: Array) -> Array:
            other = np.conj(np.swapaxes(factor, -1, -2))
            lower, above = (other, factor) if upper else (factor, other)
            return triangular_solved(above, triangular_solved(lower, b, False, False), True, False)

        x: Tensor = on_host("cholesky_solve", compute, b, factor)
        self.save(factor, x)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        factor, x = self.saved
        db: Tensor = call(CholeskySolve, grad, factor, self.upper)
        product = matmul(db, adjoint_of(x))
        both = -(product + adjoint_of(product))
        return db, matmul(factor, both) if self.upper else matmul(both, factor)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = B, given the Cholesky factor L of A = L L' (A = L' L where ``upper``)."""
    name = "cholesky_solve"
    check_matrix(name, L, square=True)
    check_matrix(name, B)
    upper = flag(name, "upper", upper)
    check_together(name, L, B)
    n = L.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with as many rows as L, got L: {L.shape} and B: {B.shape}")
    batch = broadcast_shapes(name, [L.shape[:-2], B.shape[:-2]])
    return call(CholeskySolve, expand(B, (*batch, *B.shape[-2:])), expand(L, (*batch, n, n)), upper)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A = L L' (A = L' L where ``upper``), given L."""
    check_matrix("cholesky_inverse", L, square=True)
    return cholesky_solve(expand(identity(L, L.shape[-1]), L.shape), L, upper)
