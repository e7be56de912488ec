"""Tensor's methods that factor and invert matrices, and solve with them; ``methods`` attaches them, and says how."""

from __future__ import annotations

from alpha.functions import factorisations, householder, lu_factors, matrices, pseudo_inverse, solving, triangular


class MatrixMethods:
    """The methods of batches of matrices; ``self`` is a Tensor."""

    cholesky = factorisations.cholesky
    cholesky_inverse = triangular.cholesky_inverse
    cholesky_solve = triangular.cholesky_solve
    det = solving.det
    geqrf = householder.geqrf
    inverse = solving.inverse
    logdet = solving.logdet
    lu = lu_factors.lu
    lu_solve = lu_factors.lu_solve
    matrix_exp = matrices.matrix_exp
    matrix_power = matrices.matrix_power
    orgqr = householder.orgqr
    ormqr = householder.ormqr
    pinverse = pseudo_inverse.pinverse
    qr = factorisations.qr
    slogdet = solving.slogdet
    svd = factorisations.svd
    triangular_solve = triangular.triangular_solve
