"""LU factors of matrices with exchanges of rows, and solutions by them; gradients of any order.

Packed factors are one matrix: U on and above the diagonal, L below it, whose diagonal of ones is not stored. Pivots are
those of LAPACK: the row, counted from 1, with which each step exchanged its own. Gradients: Giles, "Collected matrix
derivative results for forward and reverse mode algorithmic differentiation", 2008, section 2 (from L^-1 dA U^-1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import broadcast_shapes, flag
from alpha.autograd import Function
from alpha.dtypes import is_integer
from alpha.errors import DtypeError, IndexingError, NumericsError, ShapeError
from alpha.functions.diagonals import tril, triu
from alpha.functions.elimination import exchanged_rows, lu_factored
from alpha.functions.joining import cat
from alpha.functions.linalg import matmul
from alpha.functions.lookups import take_along_dim
from alpha.functions.operands import check_room, check_tensor
from alpha.functions.shape import expand
from alpha.functions.solving import adjoint_of, check_matrix, check_together, identity, on_host
from alpha.functions.triangular import solve_triangular
from alpha.tensor import Tensor

__all__ = ["lu", "lu_solve", "lu_unpack"]

Array = np.ndarray[Any, Any]


class Factors(NamedTuple):
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class PackedFactors(NamedTuple):
    """Both triangles in one matrix, and pivots."""

    LU: Tensor
    pivots: Tensor


class PackedFactorsAndInfo(NamedTuple):
    """The same, and for each matrix the place of the first pivot that is 0 (from 1), or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


# -- factors -----------------------------------------------------------------------------------------------------------


class LUFactorisation(Function):
    """Packed factors, pivots, and the first pivots that are 0."""

    def forward(self, a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
        packed, pivots, info = on_host("lu_factor", lambda x: lu_factored(x, pivot), a)
        self.save(packed, pivots)
        return packed, pivots, info

    def backward(self, grad: Tensor, *_: Any) -> Tensor:
        packed, pivots = self.saved
        rows, columns = packed.shape[-2:]
        steps = min(rows, columns)
        square, above = packed[..., :steps, :steps], grad[..., :steps, :steps]
        lower = tril(square, -1) + identity(packed, steps)
        upper = triu(square)
        below_part = matmul(adjoint_of(lower), tril(above, -1))
        upper_part = matmul(triu(above), adjoint_of(upper))
        # Only the first ``steps`` rows and columns decide on L and U; the others follow from them.
        if columns > steps:
            rest = grad[..., steps:]
            below_part = below_part - matmul(rest, adjoint_of(packed[..., steps:]))
        if rows > steps:
            rest = grad[..., steps:, :]
            upper_part = upper_part - matmul(adjoint_of(packed[..., steps:, :]), rest)
        inner = solve_triangular(adjoint_of(upper), tril(below_part, -1) + triu(upper_part), upper=False, left=False)
        if rows > steps:
            found = solve_triangular(adjoint_of(lower), inner, upper=True, unitriangular=True)
            found = cat([found, solve_triangular(adjoint_of(upper), rest, upper=False, left=False)], -2)
        else:
            inner = inner if columns == steps else cat([inner, rest], -1)
            found = solve_triangular(adjoint_of(lower), inner, upper=True, unitriangular=True)
        return take_along_dim(found, _order(packed, packed.engine.to_numpy(pivots), back=True), -2)


def _order(packed: Tensor, pivots: Array, back: bool) -> Tensor:
    """The order into which pivots bring rows (or from which, where ``back``), as a column of indices."""
    order = exchanged_rows(pivots, packed.shape[-2])
    return packed.engine.from_numpy(np.ascontiguousarray((order.argsort(-1) if back else order)[..., None]))


def _factored(name: str, x: Tensor, pivot: Any) -> PackedFactorsAndInfo:
    return PackedFactorsAndInfo(*LUFactorisation.apply(check_matrix(name, x), flag(name, "pivot", pivot)))


def lu_factor(A: Tensor, *, pivot: bool = True) -> PackedFactors:
    """Packed factors of A = P L U of matrices (..., M, N), and pivots (..., min(M, N)) as int32.

    Args:
        pivot: exchange rows, so that pivots are as large as can be; without, the factors may not exist.

    NumericsError where a pivot is 0, as a solution would divide by it; ``lu_factor_ex`` reports it instead. The
    gradient is finite for matrices of full rank alone.
    """
    return PackedFactors(*_checked("lu_factor", _factored("lu_factor", A, pivot))[:2])


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> PackedFactorsAndInfo:
    """``lu_factor`` with a report for each matrix: a pivot of 0 is an error only where ``check_errors``."""
    found = _factored("lu_factor_ex", A, pivot)
    return _checked("lu_factor_ex", found) if flag("lu_factor_ex", "check_errors", check_errors) else found


def _checked(name: str, found: PackedFactorsAndInfo) -> PackedFactorsAndInfo:
    """NumericsError if a pivot is 0."""
    places = found.info.engine.to_numpy(found.info)
    if places.any():
        place = int(places[places != 0].flat[0])
        raise NumericsError(
            f"[{name}] expected matrices of full rank, got one whose pivot {place} is 0: lu_factor_ex and lu factor it"
        )
    return found


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> PackedFactors | PackedFactorsAndInfo:
    """``linalg.lu_factor`` without a check of the pivots; with a report for each matrix where ``get_infos``."""
    found = _factored("lu", A, pivot)
    return found if flag("lu", "get_infos", get_infos) else PackedFactors(found.LU, found.pivots)


def linalg_lu(A: Tensor, *, pivot: bool = True) -> Factors:
    """P (..., M, M), L (..., M, K) and U (..., K, N) of A = P L U of matrices (..., M, N), K = min(M, N).

    Args:
        pivot: exchange rows; without, P is empty, and L and U hold infinities or NaN where they do not exist.

    The gradient is finite for matrices of full rank alone.
    """
    found = _factored("lu", A, pivot)
    return lu_unpack(found.LU, found.pivots, unpack_pivots=flag("lu", "pivot", pivot))


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Factors:
    """P, L and U of the packed factors and pivots that ``linalg.lu_factor`` gives.

    Args:
        unpack_data: without, L and U are empty.
        unpack_pivots: without, P is empty.
    """
    name = "lu_unpack"
    check_matrix(name, LU_data)
    rows, columns = LU_data.shape[-2:]
    steps = min(rows, columns)
    pivots = checked_pivots(name, LU_data, LU_pivots, (*LU_data.shape[:-2], steps))
    nothing = LU_data.engine.empty((0,), LU_data.dtype)
    p, lower, upper = nothing, nothing, nothing
    if flag(name, "unpack_pivots", unpack_pivots):
        p = _permutation(LU_data, pivots)
    if flag(name, "unpack_data", unpack_data):
        unit = LU_data.engine.from_numpy(np.eye(rows, steps, dtype=LU_data.dtype))
        lower, upper = tril(LU_data[..., :steps], -1) + unit, triu(LU_data[..., :steps, :])
    return Factors(p, lower, upper)


def _permutation(packed: Tensor, pivots: Array) -> Tensor:
    """The matrices P of A = P L U."""
    rows = packed.shape[-2]
    check_room(packed.engine, (*pivots.shape[:-1], rows, rows), packed.dtype)
    p = np.zeros((*pivots.shape[:-1], rows, rows), packed.dtype)
    np.put_along_axis(p, exchanged_rows(pivots, rows)[..., None, :], 1, -2)
    return packed.engine.from_numpy(p)


def checked_pivots(name: str, packed: Tensor, pivots: Any, shape: tuple[int, ...], signed: bool = False) -> Array:
    """Pivots as an array; an error unless they have a shape, and are rows counted from 1 (or -1, where ``signed``)."""
    check_tensor(name, pivots)
    packed.engine.check_owner(name, pivots)
    if not is_integer(pivots.dtype):
        raise DtypeError(f"[{name}] expected pivots as int32, got {pivots.dtype}: give those of the factorisation")
    if pivots.shape != shape:
        raise ShapeError(
            f"[{name}] expected pivots of shape {shape} for packed factors of shape {packed.shape}, got {pivots.shape}"
        )
    values: Array = pivots.engine.to_numpy(pivots)
    rows = packed.shape[-2]
    sizes = np.abs(values.astype(np.int64)) if signed else values
    if sizes.size and not 1 <= sizes.min() <= sizes.max() <= rows:
        raise IndexingError(
            f"[{name}] expected pivots in 1..{rows}{' or their negatives' if signed else ''}, got "
            f"{values.min()}..{values.max()}: give those of the factorisation"
        )
    return values


# -- solutions ---------------------------------------------------------------------------------------------------------


def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of A X = B (of X A = B where not ``left``), given packed factors and pivots of A.

    Args:
        LU: (..., N, N), and pivots (..., N).
        B: (..., N, K), or (..., K, N) where not ``left``; batch axes broadcast.
        adjoint: A is transposed in the equation.

    A pivot of 0 gives infinities and NaN.
    """
    return _solved("lu_solve", LU, pivots, B, flag("lu_solve", "left", left), flag("lu_solve", "adjoint", adjoint))


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = b, given packed factors and pivots of A: ``linalg.lu_solve``."""
    return _solved("lu_solve", LU_data, LU_pivots, b, True, False)


def _solved(name: str, packed: Tensor, pivots: Tensor, b: Tensor, left: bool, transposed: bool) -> Tensor:
    check_matrix(name, packed, square=True)
    check_matrix(name, b)
    check_together(name, packed, b)
    n = packed.shape[-1]
    values = checked_pivots(name, packed, pivots, packed.shape[:-1])
    if not left:
        return adjoint_of(_solved(name, packed, pivots, adjoint_of(b), True, not transposed))
    if b.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with {n} rows, got LU: {packed.shape} and B: {b.shape}")
    batch = broadcast_shapes(name, [packed.shape[:-2], b.shape[:-2]])
    x = expand(b, (*batch, *b.shape[-2:]))
    order = expand(_order(packed, values, transposed), (*batch, n, 1))
    if transposed:
        x = solve_triangular(adjoint_of(packed), x, upper=False)
        x = solve_triangular(adjoint_of(packed), x, upper=True, unitriangular=True)
        return take_along_dim(x, order, -2)
    x = solve_triangular(packed, take_along_dim(x, order, -2), upper=False, unitriangular=True)
    return solve_triangular(packed, x, upper=True)
