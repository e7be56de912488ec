"""LDL' factors of symmetric matrices, which need not be definite, and solutions by them.

Packed factors are one matrix: D's blocks of one or two rows on its diagonal, below them the columns of L. Pivots are
those of LAPACK: of a block of one row the row r, counted from 1, that was exchanged with it; -r for both rows of a
block of two, r having been exchanged with the second.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import broadcast_shapes, flag
from alpha.autograd import Function
from alpha.errors import GraphError, NumericsError, ShapeError
from alpha.functions.elimination import ldl_factored
from alpha.functions.lookups import take_along_dim
from alpha.functions.lu_factors import checked_pivots
from alpha.functions.operands import check_float
from alpha.functions.shape import expand
from alpha.functions.solving import check_matrix, check_together, on_host, swapped
from alpha.functions.triangular import solve_triangular
from alpha.tensor import Tensor

__all__: list[str] = []

Array = np.ndarray[Any, Any]


class SymmetricFactors(NamedTuple):
    """L and D in one matrix, and pivots."""

    LD: Tensor
    pivots: Tensor


class SymmetricFactorsAndInfo(NamedTuple):
    """The same, and for each matrix the place of the first block of D that is 0 (from 1), or 0."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


class LDLFactorisation(Function):
    """Packed factors, pivots, and the first blocks of D that are 0."""

    def forward(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        packed, pivots, info = on_host("ldl_factor", ldl_factored, a)
        return packed, pivots, info

    def backward(self, *_: Any) -> Any:
        raise GraphError("[ldl_factor] expected no gradient to be asked for, got a backward: linalg.solve has one")


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> SymmetricFactorsAndInfo:
    """``ldl_factor`` with a report for each matrix: a block of D that is 0 is an error only where ``check_errors``."""
    return _factored("ldl_factor_ex", A, hermitian, flag("ldl_factor_ex", "check_errors", check_errors))


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> SymmetricFactors:
    """Packed factors L and D of symmetric matrices (..., N, N), and pivots (..., N) as int32; for ``ldl_solve``.

    Lower triangles are read. ``hermitian`` makes no difference for real matrices. NumericsError where a block of D is
    0, as a solution would divide by it. It has no gradient, as in PyTorch. Method: Bunch and Kaufman, Math. Comp. 31,
    1977.
    """
    return SymmetricFactors(*_factored("ldl_factor", A, hermitian, True)[:2])


def _factored(name: str, x: Tensor, hermitian: Any, is_checked: bool) -> SymmetricFactorsAndInfo:
    flag(name, "hermitian", hermitian)
    check_float(name, x)
    found = SymmetricFactorsAndInfo(*LDLFactorisation.apply(check_matrix(name, x, square=True)))
    if is_checked:
        places = found.info.engine.to_numpy(found.info)
        if places.any():
            place = int(places[places != 0].flat[0])
            raise NumericsError(
                f"[{name}] expected invertible matrices, got one of whose D the block at {place} is 0: ldl_factor_ex "
                "factors it"
            )
    return found


class Places:
    """What pivots tell of matrices (..., N, N), as indices."""

    def __init__(self, pivots: Array) -> None:
        n, batch = pivots.shape[-1], pivots.shape[:-1]
        given = pivots.reshape((math.prod(batch), n))
        is_second = np.zeros((len(given), n + 1), np.bool_)
        order = np.broadcast_to(np.arange(n), (len(given), n)).copy()
        below = np.broadcast_to(np.arange(n)[:, None], (len(given), n, n)).copy()
        every, partners = np.arange(len(given)), order.copy()
        for step in range(n):
            starts = ~is_second[:, step]
            is_pair = starts & (given[:, step] < 0) & (step + 1 < n)
            is_second[:, step + 1] = is_pair
            partners[is_pair, step], partners[is_pair, min(step + 1, n - 1)] = step + 1, step
            first = step + is_pair
            second = np.where(starts, np.abs(given[:, step]) - 1, first)
            for rows in (order, below[:, :, :step]):  # columns of L that are complete follow later exchanges
                moved = rows[every, first]
                rows[every, first] = rows[every, second]
                rows[every, second] = moved
        self.order = order.reshape((*batch, n))
        """The order into which the exchanges bring rows."""
        self.below = below.reshape((*batch, n, n))
        """For each column of L the rows of the packed factors from which its elements come."""
        self.partners = partners.reshape((*batch, n))
        """The other row of each row's block of D; itself where there is none."""


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B, given packed factors and pivots of A.

    Args:
        LD: (..., N, N), and pivots (..., N), as ``ldl_factor`` gives them.
        B: (..., N, K); batch axes broadcast.
        hermitian: makes no difference for real matrices.

    A block of D that is 0 gives infinities and NaN.
    """
    name = "ldl_solve"
    check_float(name, LD, B)
    check_matrix(name, LD, square=True)
    check_matrix(name, B)
    check_together(name, LD, B)
    flag(name, "hermitian", hermitian)
    n = LD.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with {n} rows, got LD: {LD.shape} and B: {B.shape}")
    batch = broadcast_shapes(name, [LD.shape[:-2], B.shape[:-2]])
    places = Places(checked_pivots(name, LD, pivots, LD.shape[:-1], signed=True))
    are_of_l = _indices(LD, (places.partners[..., None, :] != np.arange(n)[:, None]).astype(LD.dtype))
    lower = take_along_dim(LD, _indices(LD, places.below), -2) * are_of_l
    forth, back, partners = [
        expand(_indices(LD, rows[..., None]), (*batch, n, 1))
        for rows in (places.order, places.order.argsort(-1), places.partners)
    ]
    x = take_along_dim(expand(B, (*batch, *B.shape[-2:])), forth, -2)
    x = solve_triangular(lower, x, upper=False, unitriangular=True)
    x = _solved_blocks(LD, places.partners, x, take_along_dim(x, partners, -2))
    x = solve_triangular(swapped(lower), x, upper=True, unitriangular=True)
    return take_along_dim(x, back, -2)


def _indices(like: Tensor, array: Array) -> Tensor:
    return like.engine.from_numpy(np.ascontiguousarray(array))


def _solved_blocks(packed: Tensor, partners: Array, x: Tensor, others: Tensor) -> Tensor:
    """y of D y = x, ``others`` being the elements of x in the other rows of their blocks.

    In a block [[a, e], [e, c]] it is y = (c x - e other) / (a c - e e). All is divided by e, lest products overflow; in
    a block of one row c is 1, and e is 0 and not divided by.
    """
    n, rows = packed.shape[-1], np.arange(packed.shape[-1])
    elements = packed.reshape((*packed.shape[:-2], n * n))
    is_alone = _indices(packed, (partners == rows).astype(packed.dtype))
    places = [
        rows * (n + 1) + 0 * partners,
        partners * (n + 1),
        np.maximum(partners, rows) * n + np.minimum(partners, rows),
    ]
    a, c, e = [take_along_dim(elements, _indices(packed, place), -1) for place in places]
    c, e = c * (1 - is_alone) + is_alone, e * (1 - is_alone)
    c = c / (e + is_alone)
    numerator = c.unsqueeze(-1) * x - (1 - is_alone).unsqueeze(-1) * others
    return numerator / (a * c - e).unsqueeze(-1)
