"""Powers, exponentials and norms of matrices, and least squares."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import all_axes, flag, number, one_axis, whole
from alpha.dtypes import has_gradients, is_float, real_of
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import where
from alpha.functions.factorisations import svdvals
from alpha.functions.linalg import matmul
from alpha.functions.operands import check_inexact, check_room
from alpha.functions.pseudo_inverse import matrix_rank, pinv
from alpha.functions.solving import check_matrix, check_together, identity, inv, solve
from alpha.functions.vector_norms import norm
from alpha.tensor import Tensor

__all__ = ["matrix_exp", "matrix_power"]


class LeastSquares(NamedTuple):
    """What ``lstsq`` finds; residuals and singular values may be empty."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _none(x: Tensor) -> Tensor:
    """A condition that holds nowhere: what it selects of a tensor keeps its place in the graph, with gradient 0."""
    return x.engine.from_numpy(np.zeros((), np.bool_))


def linalg_matrix_power(A: Tensor, n: int) -> Tensor:
    """Each of the matrices (..., N, N) to a whole power, by squaring; a negative one is that of the inverse."""
    check_matrix("matrix_power", A, square=True)
    n = whole("matrix_power", "n", n)
    if n == 0:
        return where(_none(A), A, identity(A, A.shape[-1]))
    square, n = (inv(A), -n) if n < 0 else (A, n)
    result = None
    while True:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if not n:
            assert result is not None
            return result.clone() if result is A else result
        square = matmul(square, square)


def matrix_power(input: Tensor, n: int) -> Tensor:
    """Each of the matrices (..., N, N) to a whole power: ``linalg.matrix_power``."""
    return linalg_matrix_power(input, n)


_TERMS = 18
"""Terms of the series of exp where the norm is at most 1/2: the next is below 2 ** -70 of the sum."""


def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each of the matrices (..., N, N): a Taylor series of A / 2 ** k, squared k times."""
    check_matrix("matrix_exp", A, square=True)
    if 0 in A.shape:
        return A.clone()
    size = float(A.detach().abs().sum(-1).max().item())
    halvings = max(0, math.ceil(math.log2(size)) + 1) if math.isfinite(size) and size > 0 else 0
    x = A * 2.0**-halvings
    unit = identity(A, A.shape[-1])
    result = unit + x / _TERMS
    for term in range(_TERMS - 1, 0, -1):
        result = unit + matmul(x, result) / term
    for _ in range(halvings):
        result = matmul(result, result)
    return result


def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of each of the matrices (..., N, N): ``linalg.matrix_exp``."""
    return linalg_matrix_exp(input)


def _order(name: str, value: Any) -> Any:
    """The order of a norm: a name, a number, or None."""
    return value if value is None or isinstance(value, str) else number(name, "the order", value)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of each of the matrices: norm(A) times norm(inv(A)), by default in the 2-norm."""
    check_matrix("cond", A)
    p = _order("cond", p)
    if p in (None, 2, -2):
        s = svdvals(A)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


@in_float32
def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """``alpha.norm`` of a number ``ord``, over an axis, several, or all."""
    return norm(x, ord, dim, keepdim, dtype=dtype)


@in_float32
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of each of the matrices along two axes.

    Args:
        ord: "fro", "nuc", infinity (largest sum of a row), 1 (of a column), 2 (largest singular value); negative ones
            for the least.
    """
    name = "matrix_norm"
    check_matrix(name, A)
    keepdim = flag(name, "keepdim", keepdim)
    axes = tuple([one_axis(name, axis, A.ndim) for axis in dim]) if isinstance(dim, tuple | list) else ()
    if len(set(axes)) != 2:
        raise ShapeError(f"[{name}] expected two axes as dim, got {described(dim)}")
    ord = _order(name, ord)
    x = A if dtype is None else A.astype(dtype)
    if ord == "fro":
        return norm(x, 2, axes, keepdim)
    moved = x.permute((*[axis for axis in range(x.ndim) if axis not in axes], *axes))
    if ord in ("nuc", 2, -2):
        s = svdvals(moved)
        found = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = moved.abs().sum(-2 if ord in (1, -1) else -1)
        found = (sums.max(-1) if ord > 0 else sums.min(-1)).values
    else:
        raise ArgumentError(
            f"[{name}] expected ord 'fro', 'nuc', 1, 2, infinity or their negatives, got {described(ord)}"
        )
    if keepdim:
        for axis in sorted(axes):
            found = found.unsqueeze(axis)
    return found


def linalg_norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A norm of vectors or matrices: ``matrix_norm`` along two axes, ``vector_norm`` along others.

    Without ``ord`` the 2-norm of all elements; with it and without ``dim``, A has one axis or two.
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    axes = dim
    if axes is None:
        if A.ndim not in (1, 2):
            raise ShapeError(f"[norm] expected one axis or two where ord is given without dim, got shape {A.shape}")
        axes = tuple(range(A.ndim))
    if isinstance(axes, tuple | list) and len(axes) == 2:
        return matrix_norm(A, ord, axes, keepdim, dtype=dtype)
    return vector_norm(A, ord, axes, keepdim, dtype=dtype)


def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> LeastSquares:
    """X that minimises |A X - B| for matrices (..., M, N) and (..., M, K), by the pseudo-inverse.

    Args:
        rcond: singular values up to rcond times the largest count as 0.
        driver: accepted for PyTorch's sake, one of its names.
    """
    check_matrix("lstsq", A)
    check_inexact("lstsq", B)
    check_together("lstsq", A, B)
    if driver is not None and (not isinstance(driver, str) or driver not in ("gels", "gelsy", "gelsd", "gelss")):
        raise ArgumentError(f"[lstsq] expected driver 'gels', 'gelsy', 'gelsd' or 'gelss', got {described(driver)}")
    vectors = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if vectors else B
    solution = matmul(pinv(A, rtol=rcond), right)
    rows, columns = A.shape[-2:]
    rank = matrix_rank(A, rtol=rcond)
    empty = A.engine.empty((0,), real_of(A.dtype))
    residuals = solution.abs().reshape((-1,))[:0]
    if rows > columns and bool((rank == columns).all().item()) and driver != "gelsy":
        rest = matmul(A, solution) - right
        residuals = (rest * rest if is_float(A.dtype) else rest.abs().square()).sum(-2)
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else empty
    named = rank if driver in ("gelsy", "gelsd", "gelss", None) else empty.long()
    return LeastSquares(solution.squeeze(-1) if vectors else solution, residuals, named, values)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map from its last axes to its first ``ind``."""
    check_inexact("tensorinv", A)
    ind = whole("tensorinv", "ind", ind, 1)
    first, last = A.shape[:ind], A.shape[ind:]
    if math.prod(first) != math.prod(last):
        raise ShapeError(f"[tensorinv] expected as many elements before axis {ind} as behind, got shape {A.shape}")
    return inv(A.reshape((math.prod(first), -1))).reshape((*last, *first))


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X of tensordot(A, X) = B; ``dims``: axes of A that are moved to its end first."""
    check_inexact("tensorsolve", A, B)
    check_together("tensorsolve", A, B)
    if dims is not None:
        last = list(all_axes("tensorsolve", dims, A.ndim))
        A = A.permute((*[axis for axis in range(A.ndim) if axis not in last], *last))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel() or math.prod(A.shape[: B.ndim]) != B.numel():
        raise ShapeError(f"[tensorsolve] expected a square map onto B's elements, got A: {A.shape} and B: {B.shape}")
    return solve(A.reshape((B.numel(), B.numel())), B.reshape((-1,))).reshape(shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0..N-1 of the elements of vectors (..., n) as rows (..., n, N); by default N = n."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"[vander] expected a tensor of vectors (..., n), got {type(x).__name__}")
    x = x.unsqueeze(0) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else whole("vander", "N", N, 1)
    check_room(x.engine, (*x.shape, count), x.dtype)
    powers = x.engine.from_numpy(np.arange(count, dtype=x.dtype if has_gradients(x.dtype) else np.int64))
    return x.unsqueeze(-1) ** powers
