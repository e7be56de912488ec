"""Inverses, determinants and systems of linear equations, by LAPACK on the host; gradients of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import broadcast_shapes, flag, within_memory
from alpha.autograd import Function
from alpha.dtypes import complex_of, is_complex, is_integer, real_of
from alpha.errors import DtypeError, NumericsError, ShapeError
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.complex_numbers import view_as_real
from alpha.functions.elementwise import log, where
from alpha.functions.elimination import lu_factored, lu_solved
from alpha.functions.linalg import matmul
from alpha.functions.operands import call, check_inexact, check_room
from alpha.functions.shape import expand
from alpha.tensor import Tensor

__all__ = ["det", "inverse", "logdet", "slogdet"]

Array = np.ndarray[Any, Any]


class SignAndLogarithm(NamedTuple):
    """A determinant as its sign and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class InverseAndInfo(NamedTuple):
    """An inverse, and for each matrix the place of the first pivot that is 0 (from 1), or 0."""

    inverse: Tensor
    info: Tensor


class ResultAndInfo(NamedTuple):
    """A solution, and for each matrix the place of the first pivot that is 0 (from 1), or 0."""

    result: Tensor
    info: Tensor


def on_host(name: str, compute: Callable[..., Any], *tensors: Tensor) -> Any:
    """What NumPy computes of tensors, as tensors on their engine; NumericsError where LAPACK fails.

    Floats come in the first tensor's dtype, or that of its parts, complex numbers in that of the same precision.
    """
    engine, dtype = tensors[0].engine, tensors[0].dtype
    for x in tensors:
        check_room(engine, x.shape, dtype)  # NumPy copies what is expanded
    try:
        with np.errstate(all="ignore"):
            arrays = [np.asarray(x.engine.to_numpy(x.detach())) for x in tensors]
            found: Any = within_memory(name, lambda: compute(*arrays))
    except np.linalg.LinAlgError as error:
        raise NumericsError(
            f"[{name}] expected matrices that LAPACK can factor, got one that it cannot: {error}"
        ) from None
    several = found if isinstance(found, tuple) else (found,)
    kinds = [_kind(x.dtype, dtype) for x in several]
    results = [np.ascontiguousarray(x, kind).reshape(np.shape(x)) for x, kind in zip(several, kinds, strict=True)]
    made = tuple([engine.from_numpy(x) for x in results])
    return made if isinstance(found, tuple) else made[0]


def _kind(found: Any, given: Any) -> Any:
    """The dtype of a result: integers keep theirs, others come in the precision of what was given."""
    if is_integer(found):
        return found
    return complex_of(real_of(given)) if is_complex(found) else real_of(given)


def swapped(x: Tensor) -> Tensor:
    """Matrices with their axes exchanged."""
    return x.transpose(-1, -2)


def adjoint_of(x: Tensor) -> Tensor:
    """Matrices with their axes exchanged, of complex numbers the conjugates: what gradients are multiplied by."""
    return conjugate(x.transpose(-1, -2))


def check_matrix(name: str, x: Any, square: bool = False) -> Tensor:
    """ShapeError or DtypeError unless it holds matrices of floats or complex numbers, square ones where asked."""
    check_inexact(name, x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        wanted = "square matrices (..., N, N)" if square else "matrices (..., M, N)"
        raise ShapeError(f"[{name}] expected {wanted}, got shape {x.shape}")
    found: Tensor = x
    return found


def check_together(name: str, *tensors: Tensor) -> None:
    """EngineError or DtypeError unless all have the first tensor's engine and dtype."""
    tensors[0].engine.check_owner(name, *tensors[1:])
    for x in tensors[1:]:
        if x.dtype != tensors[0].dtype:
            raise DtypeError(
                f"[{name}] expected tensors of one dtype, got {tensors[0].dtype} and {x.dtype}: cast one with .float() "
                "or .double()"
            )


def identity(x: Tensor, n: int) -> Tensor:
    """The unit matrix in a tensor's dtype and on its engine."""
    return x.engine.from_numpy(np.eye(n, dtype=x.dtype))


# -- inverse and solve -------------------------------------------------------------------------------------------------


class Inverse(Function):
    """The inverse of each matrix, and where a pivot is 0; its gradient is -Y' g Y'."""

    def forward(self, x: Tensor, name: str, reports: bool = False) -> tuple[Tensor, Tensor]:
        def compute(a: Array) -> tuple[Array, Array]:
            return _solved_on_host(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape), reports)

        y, info = on_host(name, compute, x)
        self.save(y)
        return y, info

    def backward(self, grad: Tensor, _: Any) -> Tensor:
        (y,) = self.saved
        return -matmul(matmul(adjoint_of(y), grad), adjoint_of(y))


class Solve(Function):
    """X of A X = B for matrices of one batch, and where a pivot is 0."""

    def forward(self, a: Tensor, b: Tensor, name: str, reports: bool = False) -> tuple[Tensor, Tensor]:
        x, info = on_host(name, lambda a, b: _solved_on_host(a, b, reports), a, b)
        self.name, self.reports = name, reports
        self.save(a, x)
        return x, info

    def backward(self, grad: Tensor, _: Any) -> tuple[Tensor, Tensor]:
        a, x = self.saved
        db: Tensor = Solve.apply(adjoint_of(a), grad, self.name, self.reports)[0]
        return -matmul(db, adjoint_of(x)), db


def _solved_on_host(a: Array, b: Array, reports: bool) -> tuple[Array, Array]:
    """X of A X = B, and where the first zero pivot of each matrix is: an error unless that is to be reported."""
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        if not reports:
            raise
    lu, pivots, info = lu_factored(a)
    return lu_solved(lu, pivots, b), info


def inv(A: Tensor) -> Tensor:
    """The inverse of each of the matrices (..., N, N); NumericsError where one has none."""
    return _inverse("inv", A)


def inverse(input: Tensor) -> Tensor:
    """The inverse of each of the matrices: ``alpha.linalg.inv``."""
    return _inverse("inverse", input)


def _inverse(name: str, x: Tensor) -> Tensor:
    found: Tensor = Inverse.apply(check_matrix(name, x, square=True), name)[0]
    return found


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseAndInfo:
    """``inv`` with a report for each matrix: one without an inverse is an error only where ``check_errors``."""
    reports = not flag("inv_ex", "check_errors", check_errors)
    return InverseAndInfo(*Inverse.apply(check_matrix("inv_ex", A, square=True), "inv_ex", reports))


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B where not ``left``; NumericsError where a matrix is singular.

    Args:
        A: (..., N, N).
        B: (..., N, K), batch axes broadcast; or vectors (N,), or (..., N) where A is (..., N, N).
    """
    return _solved("solve", A, B, left, False)[0]


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> ResultAndInfo:
    """``solve`` with a report for each matrix A: a singular one is an error only where ``check_errors``."""
    reports = not flag("solve_ex", "check_errors", check_errors)
    result, info = _solved("solve_ex", A, B, left, reports)
    if info.shape != A.shape[:-2]:  # matrices were repeated along the axes of B's batch
        info = on_host("solve_ex", lambda a: lu_factored(a)[2], A)
    return ResultAndInfo(result, info)


def _solved(name: str, a: Tensor, b: Tensor, left: Any, reports: bool) -> tuple[Tensor, Tensor]:
    """The solution, and where the first zero pivot is."""
    check_matrix(name, a, square=True)
    check_inexact(name, b)
    left = flag(name, "left", left)
    check_together(name, a, b)
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):  # vectors
        batch = broadcast_shapes(name, [a.shape[:-2], b.shape[:-1]])
        x, info = _of_one_batch(name, a, expand(b, (*batch, b.shape[-1])).unsqueeze(-1), reports)
        return x.squeeze(-1), info
    if left:
        return _of_one_batch(name, a, b, reports)
    if b.ndim > 1:
        b = swapped(b)
    x, info = _of_one_batch(name, swapped(a), b, reports)
    return swapped(x), info


def _of_one_batch(name: str, a: Tensor, b: Tensor, reports: bool) -> tuple[Tensor, Tensor]:
    n = a.shape[-1]
    if b.ndim < 2 or b.shape[-2] != n:
        raise ShapeError(f"[{name}] expected A (..., N, N) and B with N rows, got A: {a.shape} and B: {b.shape}")
    batch = broadcast_shapes(name, [a.shape[:-2], b.shape[:-2]])
    found: tuple[Tensor, Tensor] = Solve.apply(
        expand(a, (*batch, n, n)), expand(b, (*batch, n, b.shape[-1])), name, reports
    )
    return found


# -- determinants ------------------------------------------------------------------------------------------------------


class Determinant(Function):
    """The determinant of each matrix; its gradient is the matrix of cofactors, also of singular matrices."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = on_host("det", np.linalg.det, x)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, _ = self.saved
        return grad.unsqueeze(-1).unsqueeze(-1) * cofactors(x)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        if bool((y.detach() == 0).any().item()):
            return self.backward(grad)
        found: Tensor = adjoint_of(inv(x)) * (grad * conjugate(y)).unsqueeze(-1).unsqueeze(-1)
        return found


def cofactors(x: Tensor) -> Tensor:
    """The matrices of cofactors' conjugates, from singular values: no division by one of them."""

    def compute(a: Array) -> Array:
        u, s, vh = np.linalg.svd(a)
        n = a.shape[-1]
        others = np.stack([np.prod(np.delete(s, k, -1), -1) for k in range(n)], -1) if n else s
        sign = np.linalg.det(u) * np.linalg.det(vh)
        made: Array = (u * (others * np.conj(sign)[..., None])[..., None, :]) @ vh
        return made

    found: Tensor = on_host("det", compute, x)
    return found


class LogDeterminant(Function):
    """The sign of each determinant, and the logarithm of its absolute value, whose gradient is the inverse.

    The sign of a complex determinant is its direction, which changes with the imaginary part of trace(A^-1 dA).
    """

    def forward(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        self.name = name
        sign, logarithm = on_host(name, lambda a: tuple(np.linalg.slogdet(a)), x)
        self.save(x, sign)
        return sign, logarithm

    def backward(self, of_sign: Tensor | None, grad: Tensor | None) -> Tensor:
        x, sign = self.saved
        found: Tensor
        if of_sign is not None and is_complex(x.dtype):
            turned = view_as_real(conjugate(of_sign) * sign)[..., 1] * -1j
            grad = turned if grad is None else grad + turned
        if grad is None:  # the sign's gradient is 0
            found = x.engine.full(x.shape, 0, x.dtype)
            return found
        found = adjoint_of(Inverse.apply(x, self.name)[0]) * grad.unsqueeze(-1).unsqueeze(-1)
        return found


def det(input: Tensor) -> Tensor:
    """The determinant of each of the matrices (..., N, N)."""
    return call(Determinant, check_matrix("det", input, square=True))


def linalg_det(A: Tensor) -> Tensor:
    """The determinant of each of the matrices (..., N, N)."""
    return det(A)


def slogdet(input: Tensor) -> SignAndLogarithm:
    """The sign of each determinant, and the logarithm of its absolute value."""
    return SignAndLogarithm(*call(LogDeterminant, check_matrix("slogdet", input, square=True), "slogdet"))


def linalg_slogdet(A: Tensor) -> SignAndLogarithm:
    """The sign of each determinant, and the logarithm of its absolute value."""
    return slogdet(A)


def logdet(input: Tensor) -> Tensor:
    """The logarithm of each determinant; NaN where it is negative."""
    sign, logarithm = call(LogDeterminant, check_matrix("logdet", input, square=True), "logdet")
    if is_complex(input.dtype):
        return logarithm + log(sign)
    return where(sign < 0, float("nan"), logarithm)
