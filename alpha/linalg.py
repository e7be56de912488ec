"""alpha.linalg: products, inverses, factors and norms of matrices; PyTorch's names, and BLAS's gemv and ger."""

from __future__ import annotations

from alpha.functions import diagonals
from alpha.functions.contraction import vector_cross as cross
from alpha.functions.eigenvalues import eig, eigvals
from alpha.functions.factorisations import cholesky_ex, eigh, eigvalsh, svdvals
from alpha.functions.factorisations import linalg_cholesky as cholesky
from alpha.functions.factorisations import linalg_qr as qr
from alpha.functions.factorisations import linalg_svd as svd
from alpha.functions.householder import householder_product
from alpha.functions.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from alpha.functions.linalg import dot, matmul, outer
from alpha.functions.lu_factors import linalg_lu as lu
from alpha.functions.lu_factors import linalg_lu_solve as lu_solve
from alpha.functions.lu_factors import lu_factor, lu_factor_ex
from alpha.functions.matrices import (
    cond,
    lstsq,
    matrix_norm,
    tensorinv,
    tensorsolve,
    vander,
    vector_norm,
)
from alpha.functions.matrices import linalg_matrix_exp as matrix_exp
from alpha.functions.matrices import linalg_matrix_power as matrix_power
from alpha.functions.matrices import linalg_norm as norm
from alpha.functions.matvec import gemv, ger, ger_
from alpha.functions.products import multi_dot, vecdot
from alpha.functions.pseudo_inverse import matrix_rank, pinv
from alpha.functions.solving import inv, inv_ex, solve, solve_ex
from alpha.functions.solving import linalg_det as det
from alpha.functions.solving import linalg_slogdet as slogdet
from alpha.functions.triangular import solve_triangular
from alpha.tensor import Tensor

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "dot",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "gemv",
    "ger",
    "ger_",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


def diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """``alpha.diagonal`` of the last two axes unless others are named."""
    return diagonals.diagonal(x, offset, dim1, dim2)
