"""alpha.linalg: products of matrices and vectors, those of BLAS's second level among them."""

from __future__ import annotations

from alpha.functions.linalg import dot, matmul, outer
from alpha.functions.matvec import gemv, ger, ger_

__all__ = ["dot", "gemv", "ger", "ger_", "matmul", "outer"]
