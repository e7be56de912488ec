"""alpha.linalg: products of matrices and vectors, those of BLAS's second level among them, diagonals and norms."""

from __future__ import annotations

from typing import Any

from alpha import dtypes
from alpha.functions import diagonals, vector_norms
from alpha.functions.contraction import vector_cross as cross
from alpha.functions.linalg import dot, matmul, outer
from alpha.functions.matvec import gemv, ger, ger_
from alpha.functions.products import multi_dot, vecdot
from alpha.tensor import Tensor

__all__ = ["cross", "diagonal", "dot", "gemv", "ger", "ger_", "matmul", "multi_dot", "outer", "vecdot", "vector_norm"]


def diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """``alpha.diagonal`` of the last two axes unless others are named."""
    return diagonals.diagonal(x, offset, dim1, dim2)


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.DtypeLike | None = None
) -> Tensor:
    """``alpha.norm`` of a number ``ord``, over an axis, several, or all."""
    return vector_norms.norm(x, ord, dim, keepdim, dtype=dtype)
