"""Pseudo-inverses and ranks of matrices: what counts as a singular value of 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.arguments import broadcast_shapes, flag, number
from alpha.autograd import Function
from alpha.dtypes import real_of
from alpha.errors import ArgumentError
from alpha.functions.linalg import matmul
from alpha.functions.operands import call, check_room
from alpha.functions.shape import expand
from alpha.functions.solving import adjoint_of, check_matrix, on_host
from alpha.tensor import Tensor

__all__ = ["pinverse"]

Array = np.ndarray[Any, Any]


class Tolerances:
    """The bounds up to which singular values count as 0: absolute ones, and relative to the largest.

    Both are numbers or tensors of one number per matrix. By default there is no absolute one, and the relative one is
    max(M, N) times the dtype's epsilon, or 0 for matrices with an absolute one.
    """

    def __init__(self, name: str, matrices: Tensor, atol: Any, rtol: Any) -> None:
        kind = real_of(matrices.dtype)
        absolute = np.asarray(0.0 if atol is None else self._array(name, "atol", atol), kind)
        if rtol is None:
            default = max(matrices.shape[-2:]) * float(np.finfo(matrices.dtype).eps)
            relative = np.where(absolute > 0, 0.0, default)
        else:
            relative = self._array(name, "rtol", rtol)
        self.absolute, self.relative = absolute, np.asarray(relative, kind)
        self.batch = broadcast_shapes(name, [matrices.shape[:-2], self.absolute.shape, self.relative.shape])
        check_room(matrices.engine, (*self.batch, *matrices.shape[-2:]), matrices.dtype)

    @staticmethod
    def _array(name: str, argument: str, value: Any) -> Array:
        if not isinstance(value, Tensor):
            return np.asarray(number(name, f"{argument} as a tensor or", value))
        if value.requires_grad:
            raise ArgumentError(
                f"[{name}] expected {argument} without a gradient, got one that requires grad: detach it"
            )
        check_room(value.engine, value.shape, value.dtype)  # NumPy copies what is expanded
        return value.engine.to_numpy(value)

    def exceeded(self, singular: Array) -> Array:
        """Which singular values (..., K), of which the first is the largest, are above the bounds."""
        if not singular.shape[-1]:
            return np.zeros((*self.batch, 0), np.bool_)
        bounds = np.maximum(self.absolute, self.relative * singular[..., 0])
        return np.asarray(singular > bounds[..., None])


def mirrored(a: Array) -> Array:
    """The symmetric, or of complex numbers Hermitian, matrices of which lower triangles are given."""
    diagonal = np.eye(a.shape[-1], dtype=a.real.dtype)
    found: Array = np.tril(a, -1) + np.conj(np.swapaxes(np.tril(a, -1), -1, -2)) + a.real * diagonal
    return found


class PseudoInverse(Function):
    """The pseudo-inverse of each matrix. Gradient: Golub and Pereyra, SIAM J. Numer. Anal. 10(2), 1973."""

    def forward(self, x: Tensor, tolerances: Tolerances, hermitian: bool, name: str) -> Tensor:
        y: Tensor = on_host(name, lambda a: _pinv(a, tolerances, hermitian), x)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        yt, gt = adjoint_of(y), adjoint_of(grad)
        first = -matmul(matmul(yt, grad), yt)
        rows = matmul(gt - matmul(x, matmul(y, gt)), matmul(y, yt))
        columns = matmul(matmul(yt, y), gt - matmul(matmul(gt, y), x))
        return first + rows + columns


def _pinv(a: Array, tolerances: Tolerances, hermitian: bool) -> Array:
    u, s, vh = np.linalg.svd(mirrored(a) if hermitian else a, full_matrices=False)
    are_kept = tolerances.exceeded(s)
    inverted = np.where(are_kept, 1 / np.where(are_kept, s, 1), 0).astype(a.dtype)
    found: Array = np.conj(np.swapaxes(vh, -1, -2)) @ (inverted[..., :, None] * np.conj(np.swapaxes(u, -1, -2)))
    return found


def pinv(A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse of each of the matrices (..., M, N): (..., N, M).

    Args:
        atol, rtol: singular values up to the larger of atol and rtol times the largest count as 0; numbers, or tensors
            whose shape broadcasts with A's batch. By default rtol is max(M, N) times the dtype's epsilon, or 0 where
            atol is above 0.
        hermitian: the matrices are symmetric: their lower triangles are read.
    """
    check_matrix("pinv", A)
    return _inverted("pinv", A, Tolerances("pinv", A, atol, rtol), flag("pinv", "hermitian", hermitian))


def _inverted(name: str, x: Tensor, tolerances: Tolerances, hermitian: bool) -> Tensor:
    return call(PseudoInverse, expand(x, (*tolerances.batch, *x.shape[-2:])), tolerances, hermitian, name)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse of each of the matrices: ``linalg.pinv`` with ``rtol=rcond``."""
    check_matrix("pinverse", input)
    return _inverted("pinverse", input, Tolerances("pinverse", input, None, number("pinverse", "rcond", rcond)), False)


def matrix_rank(A: Tensor, *, tol: Any = None, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The number of singular values above a bound, of each of the matrices (..., M, N), as int64.

    Args:
        atol, rtol: the bound is the larger of atol and rtol times the largest singular value, as for ``pinv``.
        tol: an older name of atol, without a relative bound beside it.
        hermitian: the matrices are symmetric: their lower triangles are read.
    """
    name = "matrix_rank"
    check_matrix(name, A)
    symmetric = flag(name, "hermitian", hermitian)
    tolerances = Tolerances(name, A, tol, 0.0) if tol is not None else Tolerances(name, A, atol, rtol)

    def compute(a: Array) -> Array:
        s = np.linalg.svd(mirrored(a) if symmetric else a, compute_uv=False)
        return np.asarray(tolerances.exceeded(s).sum(-1, dtype=np.int64))

    found: Tensor = on_host(name, compute, A)
    return found
