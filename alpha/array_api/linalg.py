"""The standard's functions of matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

from alpha import dtypes
from alpha import linalg as matrices
from alpha.arguments import broadcast_shapes, one_axis
from alpha.array_api.promotion import Axis, of_two, over_axes, promoted
from alpha.errors import ShapeError
from alpha.functions import contraction, diagonals, products, reduction
from alpha.functions import linalg as functions
from alpha.functions.casting import cast
from alpha.functions.operands import check_tensor
from alpha.functions.shape import expand, squeeze, unsqueeze
from alpha.functions.views import broadcast_tensors
from alpha.tensor import Tensor

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

cholesky = matrices.cholesky
det = matrices.det
diagonal = matrices.diagonal
eig, eigvals = matrices.eig, matrices.eigvals
eigh = matrices.eigh
eigvalsh = matrices.eigvalsh
inv = matrices.inv
matrix_power = matrices.matrix_power
slogdet = matrices.slogdet
svdvals = matrices.svdvals
matmul = of_two("matmul", functions.matmul)
outer = of_two("outer", functions.outer)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    check_tensor("matrix_transpose", x)
    if x.ndim < 2:
        raise ShapeError(f"[matrix_transpose] expected at least two axes, got shape {x.shape}")
    return x.transpose(-2, -1)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product of vectors of 3 along an axis; the other axes broadcast."""
    check_tensor("cross", x1, x2)
    return matrices.cross(*broadcast_tensors(promoted((x1, x2))), dim=axis)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of each of the matrices (..., M, N): see ``alpha.linalg.matrix_norm``."""
    return matrices.matrix_norm(x, ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above rtol times the largest; by default max(M, N) times the dtype's epsilon."""
    return matrices.matrix_rank(x, rtol=rtol)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse: singular values up to rtol times the largest count as 0; see ``matrix_rank``."""
    return matrices.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """(Q, R) with x = Q R, Q of orthonormal columns and R upper triangular."""
    return matrices.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The x of x1 x = x2. An x2 of one axis is a vector, any other holds matrices; their batch axes broadcast."""
    check_tensor("solve", x1, x2)
    a, b = promoted((x1, x2))
    if b.ndim == 1:
        return squeeze(matrices.solve(a, unsqueeze(b, -1)), -1)
    # PyTorch takes a matrix that has the shape of a batch of vectors for such a batch: repeated along the batch, it
    # has not.
    batch = broadcast_shapes("solve", [a.shape[:-2], b.shape[:-2]])
    return matrices.solve(a, expand(b, (*batch, *b.shape[-2:])))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """(U, S, Vh) with x = U diag(S) Vh, the singular values in descending order."""
    return matrices.svd(x, full_matrices)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over the last ``axes`` of x1 and the first of x2, or over pairs of axes that two lists name."""
    check_tensor("tensordot", x1, x2)
    one, other = promoted((x1, x2))
    return contraction.tensordot(one, other, axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """The sum of a diagonal of each of the matrices, ``offset`` columns to the right; of integers int64."""
    return reduction.sum(diagonals.diagonal(x, offset, -2, -1), -1, dtype=dtype)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sums of products along an axis, of x1's conjugates, in the arrays' dtype; the other axes broadcast."""
    check_tensor("vecdot", x1, x2)
    one, other = promoted((x1, x2))
    if one.shape[one_axis("vecdot", axis, one.ndim)] != other.shape[one_axis("vecdot", axis, other.ndim)]:
        raise ShapeError(f"[vecdot] expected vectors of one length along axis {axis}, got {x1.shape} and {x2.shape}")
    return cast(products.vecdot(one, other, dim=axis), one.dtype)


def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """The norm over axes, or of all elements: (sum of abs(x) ** ord) ** (1 / ord); infinity for the largest."""
    return over_axes("vector_norm", partial(_norm, ord), x, axis, keepdims)


def _norm(ord: Any, x: Tensor, axes: Any, keepdims: bool) -> Tensor:
    return matrices.vector_norm(x, ord, axes, keepdims)
