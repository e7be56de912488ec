"""The largest singular values and principal components of matrices, from products with random vectors.

Source: Halko, Martinsson and Tropp, arXiv 0909.4061, algorithms 4.4 (the range of a matrix by iterations of a random
subspace, made orthonormal in each) and 5.1 (singular values within that range).
"""

from __future__ import annotations

from typing import Any

from alpha.arguments import flag, whole
from alpha.errors import ArgumentError
from alpha.functions.drawing import randn
from alpha.functions.factorisations import UsualSVD, linalg_qr, linalg_svd
from alpha.functions.linalg import matmul
from alpha.functions.shape import broadcast_to
from alpha.functions.solving import adjoint_of, check_matrix, check_together
from alpha.tensor import Tensor

__all__ = ["pca_lowrank", "svd_lowrank"]

_MOST_ITERATIONS = 10_000
"""Most iterations: after so many the subspace stays where it is, unless singular values are all but equal."""


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> UsualSVD:
    """U (..., M, q), S (..., q) and V (..., N, q) of A = U diag(S) V', for matrices (..., M, N) of rank q about.

    Args:
        q: how many singular values; rather more than wanted, for the last are the least exact. At most min(M, N) are
            found.
        niter: iterations, 0 to 10000; 2 are enough unless singular values fall slowly.
        M: what is subtracted from A first; its shape broadcasts to A's.

    The random vectors follow ``alpha.manual_seed``.
    """
    name = "svd_lowrank"
    check_matrix(name, A)
    q, niter = whole(name, "q", q, 0), whole(name, "niter", niter, 0, _MOST_ITERATIONS)
    if M is not None:
        check_matrix(name, M)
        check_together(name, A, M)
        A = A - broadcast_to(M, A.shape)
    return _components(A, q, niter)


def _components(x: Tensor, count: int, iterations: int) -> UsualSVD:
    """The largest singular values, found from the side with fewer vectors."""
    if x.shape[-2] < x.shape[-1]:
        found = _components(adjoint_of(x), count, iterations)
        return UsualSVD(found.V, found.S, found.U)
    count = min(count, x.shape[-1])
    basis = linalg_qr(matmul(x, randn((x.shape[-1], count), dtype=x.dtype, engine=x.engine))).Q
    for _ in range(iterations):
        basis = linalg_qr(matmul(adjoint_of(x), basis)).Q
        basis = linalg_qr(matmul(x, basis)).Q
    u, s, vh = linalg_svd(matmul(adjoint_of(basis), x), full_matrices=False)
    return UsualSVD(matmul(basis, u), s, adjoint_of(vh))


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> UsualSVD:
    """The principal components of matrices (..., M, N), whose rows are M samples: U, S and V as of ``svd_lowrank``.

    The columns of V are the principal directions, S ** 2 / (M - 1) the variances along them.

    Args:
        q: how many; by default min(6, M, N).
        center: subtract the columns' means first.
        niter: iterations, 0 to 10000.
    """
    name = "pca_lowrank"
    check_matrix(name, A)
    least = min(A.shape[-2:])
    count: Any = min(6, least) if q is None else q
    if q is not None and whole(name, "q", q, 0) > least:
        raise ArgumentError(f"[{name}] expected q of at most min(M, N), which is {least}, got {q}")
    niter = whole(name, "niter", niter, 0, _MOST_ITERATIONS)
    return _components(A - A.mean(-2, keepdim=True) if flag(name, "center", center) else A, count, niter)
