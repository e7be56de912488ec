"""Factors of matrices, by LAPACK on the host; gradients of any order.

Gradients: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008;
Murray, arXiv 1602.07527 (Cholesky); Roberts and Roberts, arXiv 2009.10071 (QR).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import flag
from alpha.autograd import Function
from alpha.dtypes import is_complex
from alpha.errors import ArgumentError, GraphError, described
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.elementwise import where
from alpha.functions.elimination import cholesky_factored
from alpha.functions.linalg import matmul
from alpha.functions.operands import call
from alpha.functions.solving import adjoint_of, check_matrix, identity, on_host
from alpha.functions.triangular import solve_triangular
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

__all__ = ["cholesky", "qr", "svd"]


class QR(NamedTuple):
    """Orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class UsualSVD(NamedTuple):
    """The same with the right singular vectors as columns, as ``alpha.svd`` gives them."""

    U: Tensor
    S: Tensor
    V: Tensor


class Eigen(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class CholeskyAndInfo(NamedTuple):
    """A Cholesky factor, and for each matrix the order of the first leading minor that is not positive, or 0."""

    L: Tensor
    info: Tensor


def _mask(x: Tensor, array: Array) -> Tensor:
    return x.engine.from_numpy(np.asarray(array, x.dtype))


# -- Cholesky ----------------------------------------------------------------------------------------------------------


class Cholesky(Function):
    """L of A = L L', of which the lower triangle is read, and where it ends."""

    def forward(self, a: Tensor, name: str, reports: bool) -> tuple[Tensor, Tensor]:
        y, info = on_host(name, lambda x: _cholesky_on_host(x, reports), a)
        self.save(y)
        return y, info

    def backward(self, grad: Tensor, _: Any) -> Tensor:
        (y,) = self.saved
        inner = matmul(adjoint_of(y), grad)
        n = inner.shape[-1]
        below = inner * _mask(inner, np.tril(np.ones((n, n)), -1))
        inner = (below + inner * _mask(inner, np.eye(n)) + adjoint_of(below)) * 0.5
        left = solve_triangular(adjoint_of(y), inner, upper=True)
        return solve_triangular(y, left, upper=False, left=False)


def _cholesky_on_host(a: Array, reports: bool) -> tuple[Array, Array]:
    """The factors, and the order of the first minor that is not positive: an error unless that is to be reported."""
    try:
        return np.linalg.cholesky(a), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        if not reports:
            raise
    return cholesky_factored(a)


def _cholesky(name: str, x: Tensor, upper: Any, reports: bool = False) -> CholeskyAndInfo:
    upper = flag(name, "upper", upper)
    y, info = Cholesky.apply(check_matrix(name, x, square=True), name, reports)
    return CholeskyAndInfo(adjoint_of(y) if upper else y, info)


def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L of A = L L' for positive definite matrices (..., N, N); U of A = U' U where ``upper``."""
    return _cholesky("cholesky", A, upper).L


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """L of A = L L' for positive definite matrices (..., N, N); U of A = U' U where ``upper``."""
    return _cholesky("cholesky", input, upper).L


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyAndInfo:
    """``cholesky`` with a report for each matrix.

    One that is not positive definite is an error only where ``check_errors``; else its factor ends before the column
    that ``info`` names.
    """
    return _cholesky("cholesky_ex", A, upper, not flag("cholesky_ex", "check_errors", check_errors))


# -- QR ----------------------------------------------------------------------------------------------------------------


class Orthogonal(Function):
    """Q and R of A = Q R."""

    def forward(self, a: Tensor, mode: Any) -> tuple[Tensor, Tensor]:
        self.mode = mode
        q, r = on_host("qr", lambda x: tuple(np.linalg.qr(x, mode)), a)
        self.save(q, r, a)
        return q, r

    def backward(self, dq: Tensor | None, dr: Tensor | None) -> Tensor:
        q, r, a = self.saved
        rows, columns = a.shape[-2:]
        if self.mode == "complete" and rows > columns:
            raise ArgumentError(
                "[qr] expected mode 'reduced' where gradients are asked for of more rows than columns, got 'complete': "
                "the columns beyond are not determined by the matrix"
            )
        if rows >= columns:
            return _qr_gradient(q, r, dq, dr)
        # A = [X | Y] = Q [U | V] with square X and U, so that Y = Q V.
        x_r, y = r[..., :rows], a[..., rows:]
        du = None if dr is None else dr[..., :rows]
        dv = None if dr is None else dr[..., rows:]
        if dv is not None:
            through = matmul(y, adjoint_of(dv))
            dq = through if dq is None else dq + through
        dx = _qr_gradient(q, x_r, dq, du)
        from alpha.functions.joining import cat

        dy = matmul(q, dv) if dv is not None else y * 0
        return cat([dx, dy], -1)


def _qr_gradient(q: Tensor, r: Tensor, dq: Tensor | None, dr: Tensor | None) -> Tensor:
    """The gradient of a matrix with no more columns than rows."""
    inner = None
    if dr is not None:
        inner = matmul(r, adjoint_of(dr))
    if dq is not None:
        part = -matmul(adjoint_of(dq), q)
        inner = part if inner is None else inner + part
    assert inner is not None
    n = inner.shape[-1]
    lower = _mask(inner, np.tril(np.ones((n, n)), -1))
    symmetric = inner * lower
    diagonal = inner + conjugate(inner) if is_complex(inner.dtype) else inner
    symmetric = symmetric + adjoint_of(symmetric) + diagonal * _mask(inner, np.eye(n) / (1 + is_complex(inner.dtype)))
    whole = matmul(q, symmetric)
    whole = whole if dq is None else whole + dq
    return solve_triangular(adjoint_of(r), whole, upper=False, left=False)


def linalg_qr(A: Tensor, mode: str = "reduced") -> QR:
    """Q with orthonormal columns and an upper triangle R of A = Q R, for matrices (..., M, N).

    Args:
        mode: "reduced"; "complete" for a square Q; "r" for R alone, Q being empty.
    """
    check_matrix("qr", A)
    if not isinstance(mode, str) or mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"[qr] expected mode 'reduced', 'complete' or 'r', got {described(mode)}")
    q, r = call(Orthogonal, A, "reduced" if mode == "r" else mode)
    return QR(A.engine.empty((0,), A.dtype) if mode == "r" else q, r)


def qr(input: Tensor, some: bool = True) -> QR:
    """``linalg.qr``: reduced, or complete where not ``some``."""
    return linalg_qr(input, "reduced" if flag("qr", "some", some) else "complete")


# -- symmetric eigenvalues ---------------------------------------------------------------------------------------------


class Symmetric(Function):
    """Eigenvalues and eigenvectors of symmetric matrices."""

    def forward(self, a: Tensor, lower: Any) -> tuple[Tensor, Tensor]:
        values, vectors = on_host("eigh", lambda x: tuple(np.linalg.eigh(x, lower)), a)
        self.save(values, vectors)
        return values, vectors

    def backward(self, dvalues: Tensor | None, dvectors: Tensor | None) -> Tensor:
        values, vectors = self.saved
        n = values.shape[-1]
        inner = None if dvalues is None else dvalues.unsqueeze(-1) * identity(vectors, n)
        if dvectors is not None:
            apart = values.unsqueeze(-2) - values.unsqueeze(-1)
            diagonal = _mask(values, np.eye(n)) > 0
            product = matmul(adjoint_of(vectors), dvectors)
            check_phases("eigh", product)
            turned = where(diagonal, 0.0, product / where(diagonal, 1.0, apart))
            turned = (turned + adjoint_of(turned)) * 0.5
            inner = turned if inner is None else inner + turned
        return matmul(matmul(vectors, inner), adjoint_of(vectors))


def check_phases(name: str, *products: Tensor) -> None:
    """GraphError where a loss depends on the directions of complex vectors, which matrices do not determine.

    ``products``: of the vectors' adjoints and their gradients; the imaginary parts of their diagonals sum to 0.
    """
    if not is_complex(products[0].dtype):
        return
    arrays = [x.engine.to_numpy(x.detach()) for x in products]
    turned = sum(np.diagonal(a, 0, -2, -1).imag for a in arrays)
    scale = max([1.0, *[float(np.abs(a).max(initial=0)) for a in arrays]])
    if np.abs(turned).max(initial=0) > 1e-2 * scale:
        raise GraphError(
            f"[{name}] expected a loss that stays where a vector is multiplied by a number of absolute value 1, got "
            "another: take absolute values, or products in which such a factor vanishes"
        )


def eigh(A: Tensor, UPLO: str = "L") -> Eigen:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices (..., N, N).

    Args:
        UPLO: the triangle that is read, "L" or "U".

    The gradient of eigenvectors is not finite where eigenvalues are equal.
    """
    check_matrix("eigh", A, square=True)
    if not isinstance(UPLO, str) or UPLO not in ("L", "U", "l", "u"):
        raise ArgumentError(f"[eigh] expected UPLO as 'L' or 'U', got {described(UPLO)}")
    return Eigen(*call(Symmetric, A, UPLO.upper()))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices (..., N, N), ascending."""
    return eigh(A, UPLO).eigenvalues


# -- singular values ---------------------------------------------------------------------------------------------------


class SingularValues(Function):
    """U, S and Vh of A = U diag(S) Vh; singular vectors beyond the singular values have no gradient."""

    def forward(self, a: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = on_host("svd", lambda x: tuple(np.linalg.svd(x, full_matrices=full)), a)
        self.save(u, s, vh)
        return u, s, vh

    def backward(self, du: Tensor | None, ds: Tensor | None, dvh: Tensor | None) -> Tensor:
        u, s, vh = self.saved
        n = s.shape[-1]
        u, vh = u[..., :n], vh[..., :n, :]
        du, dvh = None if du is None else du[..., :n], None if dvh is None else dvh[..., :n, :]
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        inner = None if ds is None else ds.unsqueeze(-1) * identity(u, n)
        result = None
        if du is not None or dvh is not None:
            diagonal = _mask(s, np.eye(n)) > 0
            apart = where(diagonal, 1.0, (row - column) * (row + column))
        if du is not None:
            turned = matmul(adjoint_of(u), du)
            left = turned
            skew = where(diagonal, 0.0, (turned - adjoint_of(turned)) / apart) * row
            inner = skew if inner is None else inner + skew
            if u.shape[-2] > n:
                result = matmul((du - matmul(u, turned)) / row, vh)
        if dvh is not None:
            turned = matmul(vh, adjoint_of(dvh))
            if is_complex(u.dtype):
                check_phases("svd", turned, *([] if du is None else [left]))
                if du is not None:  # both sides turn alike
                    phases = where(diagonal, (left - adjoint_of(left)) * 0.5, 0.0) / row
                    inner = phases if inner is None else inner + phases
            skew = where(diagonal, 0.0, (turned - adjoint_of(turned)) / apart) * column
            inner = skew if inner is None else inner + skew
            if vh.shape[-1] > n:
                rest = matmul(u, (dvh - matmul(adjoint_of(turned), vh)) / column)
                result = rest if result is None else result + rest
        whole = matmul(matmul(u, inner), vh)
        return whole if result is None else whole + result


def linalg_svd(A: Tensor, full_matrices: bool = True) -> SVD:
    """U, S and Vh of A = U diag(S) Vh for matrices (..., M, N), singular values descending.

    Args:
        full_matrices: make U and Vh square; those have no gradient where M and N differ.

    Singular vectors have no finite gradient where singular values are equal.
    """
    check_matrix("svd", A)
    return SVD(*call(SingularValues, A, flag("svd", "full_matrices", full_matrices)))


def svdvals(A: Tensor) -> Tensor:
    """The singular values of matrices (..., M, N), descending."""
    check_matrix("svdvals", A)
    found: Tensor = call(SingularValues, A, False)[1]
    return found


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> UsualSVD:
    """U, S and V of A = U diag(S) V'; ``linalg.svd`` gives V' instead.

    Args:
        some: reduced, instead of square, U and V.
        compute_uv: without it U and V are zeros.
    """
    if not flag("svd", "compute_uv", compute_uv):
        s = svdvals(input)
        zeros = [input.engine.full((*input.shape[:-2], k, k), 0, input.dtype) for k in input.shape[-2:]]
        return UsualSVD(zeros[0], s, zeros[1])
    u, s, vh = linalg_svd(input, not flag("svd", "some", some))
    return UsualSVD(u, s, adjoint_of(vh))
