"""Products of Householder reflections I - tau v v', as QR factors are kept by LAPACK; gradients of any order.

A matrix holds the vectors v in its columns below the diagonal; their first elements, on the diagonal, are 1 and not
stored. A product of K reflections is I - V T V' with a triangle T of K rows (Schreiber and Van Loan, SIAM J. Sci. Stat.
Comput. 10(1), 1989), so that it takes three products of matrices. Its inverse T^-1 = D^-1 + S has the factors tau as
D's diagonal and what is above the diagonal of V' V as S (Puglisi, SIAM J. Sci. Stat. Comput. 13(3), 1992); where a
factor is 0, D^-1 does not exist, but T = (I + D S)^-1 D does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import flag
from alpha.autograd import Function
from alpha.errors import GraphError, ShapeError
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.diagonals import tril, triu
from alpha.functions.linalg import matmul
from alpha.functions.operands import check_inexact
from alpha.functions.solving import adjoint_of, check_matrix, check_together, on_host
from alpha.functions.triangular import solve_triangular
from alpha.tensor import Tensor

__all__ = ["geqrf", "orgqr", "ormqr"]

Array = np.ndarray[Any, Any]


class Reflections(NamedTuple):
    """R and the vectors of reflections in one matrix, and the factors of the reflections."""

    a: Tensor
    tau: Tensor


class PackedQR(Function):
    """R on and above the diagonal, the vectors of reflections below it, and the reflections' factors."""

    def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
        packed, tau = on_host("geqrf", _packed_qr, a)
        return packed, tau

    def backward(self, *_: Any) -> Any:
        raise GraphError("[geqrf] expected no gradient to be asked for, got a backward: linalg.qr has one")


def _packed_qr(a: Array) -> tuple[Array, Array]:
    transposed, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(transposed, -1, -2), tau


def geqrf(input: Tensor) -> Reflections:
    """The QR factors of matrices (..., M, N) as LAPACK keeps them: R, and reflections whose product is Q.

    Returns:
        a (..., M, N): R on and above the diagonal, below it the reflections' vectors, whose first element, 1, is left
        out; and the reflections' factors tau (..., min(M, N)). ``linalg.householder_product`` and ``ormqr`` take both.

    It has no gradient, as in PyTorch.
    """
    return Reflections(*PackedQR.apply(check_matrix("geqrf", input)))


def _vectors(packed: Tensor, count: int) -> Tensor:
    """The reflections' vectors as the columns of a matrix."""
    rows = packed.shape[-2]
    unit = packed.engine.from_numpy(np.eye(rows, count, dtype=packed.dtype))
    return tril(packed[..., :count], -1) + unit


def _reflected(vectors: Tensor, tau: Tensor, x: Tensor, transposed: bool) -> Tensor:
    """Q x, or Q' x: x without V T V' x."""
    count = tau.shape[-1]
    factors = tau.unsqueeze(-1)
    above = triu(matmul(adjoint_of(vectors), vectors), 1)
    inner = matmul(adjoint_of(vectors), x)
    if transposed:  # T' = D (I + S' D)^-1
        system = adjoint_of(above) * conjugate(tau).unsqueeze(-2)
        inner = conjugate(factors) * solve_triangular(system, inner, upper=False, unitriangular=True)
    else:
        inner = solve_triangular(factors * above, factors * inner, upper=True, unitriangular=True)
    return x - matmul(vectors, inner) if count else x + 0 * matmul(vectors, inner)


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first N columns of a product of Householder reflections: (..., M, N).

    Args:
        A: (..., M, N) with N <= M, whose columns hold the reflections' vectors below the diagonal.
        tau: (..., K) with K <= N, the reflections' factors.
    """
    return _product("householder_product", A, tau)


def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """The first N columns of a product of Householder reflections: ``linalg.householder_product``."""
    return _product("orgqr", input, tau)


def _product(name: str, x: Tensor, tau: Tensor) -> Tensor:
    check_matrix(name, x)
    check_inexact(name, tau)
    rows, columns = x.shape[-2:]
    if columns > rows or tau.ndim != x.ndim - 1 or tau.shape[:-1] != x.shape[:-2] or tau.shape[-1] > columns:
        raise ShapeError(
            f"[{name}] expected matrices (..., M, N) with N <= M and tau (..., K) with K <= N, got {x.shape} and "
            f"{tau.shape}"
        )
    check_together(name, x, tau)
    unit = x.engine.from_numpy(np.eye(rows, columns, dtype=x.dtype))
    return _reflected(_vectors(x, tau.shape[-1]), tau, unit, False)


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q C, or C Q where not ``left``, Q being a product of Householder reflections; Q' for Q where ``transpose``.

    Args:
        input: (..., R, N), whose columns hold the reflections' vectors below the diagonal, as ``geqrf`` gives them.
        tau: (..., min(R, N)), the reflections' factors.
        other: C (..., R, K), or (..., K, R) where not ``left``.
    """
    name = "ormqr"
    check_matrix(name, input)
    check_matrix(name, other)
    check_inexact(name, tau)
    left, transposed = flag(name, "left", left), flag(name, "transpose", transpose)
    batch, (rows, columns) = input.shape[:-2], input.shape[-2:]
    shape = (*batch, min(rows, columns))
    if tau.shape != shape or other.shape[:-2] != batch or other.shape[-2 if left else -1] != rows:
        wanted = f"{(*batch, rows)} and an axis" if left else f"{batch}, an axis and {rows}"
        raise ShapeError(
            f"[{name}] expected, for input of shape {input.shape}, tau of shape {shape} and other of {wanted}, got "
            f"{tau.shape} and {other.shape}"
        )
    check_together(name, input, tau, other)
    vectors = _vectors(input, tau.shape[-1])
    if left:
        return _reflected(vectors, tau, other, transposed)
    return adjoint_of(_reflected(vectors, tau, adjoint_of(other), not transposed))
