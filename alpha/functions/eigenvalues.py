"""Eigenvalues and eigenvectors of matrices that need not be symmetric, by LAPACK on the host; they are complex.

Gradients: Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
beamforming", arXiv 1701.00392, section 4.7, for eigenvectors of length 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.autograd import Function, enters_graph
from alpha.dtypes import complex_of, is_complex, real_of
from alpha.functions.casting import cast
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.complex_numbers import real
from alpha.functions.elementwise import where
from alpha.functions.factorisations import check_phases
from alpha.functions.linalg import matmul
from alpha.functions.operands import call
from alpha.functions.solving import adjoint_of, check_matrix, identity, on_host, solve
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]


class Eigen(NamedTuple):
    """Eigenvalues, in no order, and eigenvectors of length 1 as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class General(Function):
    """Eigenvalues and eigenvectors of square matrices."""

    def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
        kind = complex_of(real_of(a.dtype))
        self.is_real = not is_complex(a.dtype)

        def compute(x: Array) -> tuple[Array, ...]:
            return tuple([part.astype(kind) for part in np.linalg.eig(x)])

        values, vectors = on_host("eig", compute, a)
        self.save(values, vectors)
        return values, vectors

    def backward(self, dvalues: Tensor | None, dvectors: Tensor | None) -> Tensor:
        values, vectors = self.saved
        n = values.shape[-1]
        unit = identity(vectors, n)
        inner = None if dvalues is None else dvalues.unsqueeze(-1) * unit
        back = adjoint_of(vectors)
        if dvectors is not None:
            product = matmul(back, dvectors)
            check_phases("eig", product)
            lengths = real((product * unit).sum(-2)).unsqueeze(-2)  # what would change a vector's length
            moved = product - matmul(back, vectors * lengths)
            apart = conjugate(values.unsqueeze(-2) - values.unsqueeze(-1))
            on_diagonal = unit != 0
            turned = where(on_diagonal, 0.0, moved / where(on_diagonal, 1.0, apart))
            inner = turned if inner is None else inner + turned
        assert inner is not None
        found = solve(back, matmul(inner, back))
        return real(found) if self.is_real else found


def eig(A: Tensor) -> Eigen:
    """Eigenvalues and eigenvectors of square matrices (..., N, N), complex whatever A is.

    The eigenvectors are columns of length 1. Their gradient is finite where eigenvalues differ, and exists for losses
    that stay where a vector is multiplied by a number of absolute value 1. NumericsError where LAPACK finds none.
    """
    return Eigen(*call(General, check_matrix("eig", A, square=True)))


def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of square matrices (..., N, N), complex whatever A is, in no order."""
    check_matrix("eigvals", A, square=True)
    if enters_graph(A):
        return eig(A).eigenvalues
    kind = complex_of(real_of(A.dtype))
    return cast(on_host("eigvals", lambda x: np.linalg.eigvals(x).astype(kind), A), kind)
