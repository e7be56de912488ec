"""Inverses, determinants and systems of linear equations, by LAPACK on the host; gradients of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import broadcast_shapes, flag, number
from alpha.autograd import Function
from alpha.errors import NumericsError, ShapeError
from alpha.functions.elementwise import where
from alpha.functions.linalg import matmul
from alpha.functions.operands import call, check_float, check_room
from alpha.functions.shape import expand
from alpha.tensor import Tensor

__all__ = ["cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "pinverse", "slogdet", "triangular_solve"]

Array = np.ndarray[Any, Any]


class SignAndLogarithm(NamedTuple):
    """A determinant as its sign and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SolutionAndMatrix(NamedTuple):
    """A solution, and the matrix of the system."""

    solution: Tensor
    cloned_coefficient: Tensor


def on_host(name: str, compute: Callable[..., Any], *tensors: Tensor) -> Any:
    """What NumPy computes of tensors, as tensors on their engine; NumericsError where LAPACK fails."""
    engine, dtype = tensors[0].engine, tensors[0].dtype
    for x in tensors:
        check_room(engine, x.shape, dtype)  # NumPy copies what is expanded
    try:
        with np.errstate(all="ignore"):
            found = compute(*[np.asarray(x.engine.to_numpy(x.detach())) for x in tensors])
    except np.linalg.LinAlgError as error:
        raise NumericsError(
            f"[{name}] expected matrices that LAPACK can factor, got one that it cannot: {error}"
        ) from None
    several = found if isinstance(found, tuple) else (found,)
    made = tuple([engine.from_numpy(np.ascontiguousarray(x, dtype).reshape(np.shape(x))) for x in several])
    return made if isinstance(found, tuple) else made[0]


def swapped(x: Tensor) -> Tensor:
    """Matrices with their axes exchanged."""
    return x.transpose(-1, -2)


def check_matrix(name: str, x: Any, square: bool = False) -> Tensor:
    """ShapeError or DtypeError unless it holds float matrices, square ones where asked."""
    check_float(name, x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        wanted = "square matrices (..., N, N)" if square else "matrices (..., M, N)"
        raise ShapeError(f"[{name}] expected {wanted}, got shape {x.shape}")
    found: Tensor = x
    return found


def identity(x: Tensor, n: int) -> Tensor:
    """The unit matrix in a tensor's dtype and on its engine."""
    return x.engine.from_numpy(np.eye(n, dtype=x.dtype))


# -- inverse and solve -------------------------------------------------------------------------------------------------


class Inverse(Function):
    """The inverse of each matrix; its gradient is -Y' g Y'."""

    def forward(self, x: Tensor, name: str) -> Tensor:
        y: Tensor = on_host(name, np.linalg.inv, x)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return -matmul(matmul(swapped(y), grad), swapped(y))


class Solve(Function):
    """X of A X = B for matrices of one batch."""

    def forward(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        x: Tensor = on_host(name, np.linalg.solve, a, b)
        self.name = name
        self.save(a, x)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, x = self.saved
        db: Tensor = call(Solve, swapped(a), grad, self.name)
        return -matmul(db, swapped(x)), db


def inv(A: Tensor) -> Tensor:
    """The inverse of each of the matrices (..., N, N); NumericsError where one has none."""
    return call(Inverse, check_matrix("inv", A, square=True), "inv")


def inverse(A: Tensor) -> Tensor:
    """The inverse of each of the matrices: ``alpha.linalg.inv``."""
    return call(Inverse, check_matrix("inverse", A, square=True), "inverse")


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B where not ``left``.

    Args:
        A: (..., N, N).
        B: (..., N, K), batch axes broadcast; or vectors (N,), or (..., N) where A is (..., N, N).
    """
    check_matrix("solve", A, square=True)
    check_float("solve", B)
    left = flag("solve", "left", left)
    A.engine.check_owner("solve", B)
    vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    if vectors:
        batch = broadcast_shapes("solve", [A.shape[:-2], B.shape[:-1]])
        return _solved(A, expand(B, (*batch, B.shape[-1])).unsqueeze(-1)).squeeze(-1)
    if left:
        return _solved(A, B)
    return swapped(_solved(swapped(A), swapped(B)))


def _solved(a: Tensor, b: Tensor) -> Tensor:
    n = a.shape[-1]
    if b.ndim < 2 or b.shape[-2] != n:
        raise ShapeError(f"[solve] expected A (..., N, N) and B with N rows, got A: {a.shape} and B: {b.shape}")
    batch = broadcast_shapes("solve", [a.shape[:-2], b.shape[:-2]])
    found: Tensor = call(Solve, expand(a, (*batch, n, n)), expand(b, (*batch, n, b.shape[-1])), "solve")
    return found


# -- triangular --------------------------------------------------------------------------------------------------------


class SolveTriangular(Function):
    """X of A X = B, of which one triangle of A is read."""

    def forward(self, a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
        self.upper, self.unit = upper, unit
        x: Tensor = on_host("solve_triangular", lambda a, b: np.linalg.solve(_triangle(a, upper, unit), b), a, b)
        self.save(a, x)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, x = self.saved
        db: Tensor = call(SolveTriangular, swapped(a), grad, not self.upper, self.unit)
        n = a.shape[-1]
        mask = np.triu(np.ones((n, n)), int(self.unit)) if self.upper else np.tril(np.ones((n, n)), -int(self.unit))
        return -matmul(db, swapped(x)) * a.engine.from_numpy(mask.astype(a.dtype)), db


def _triangle(a: Array, upper: bool, unit: bool) -> Array:
    a = np.triu(a) if upper else np.tril(a)
    if unit:
        n = a.shape[-1]
        a[..., range(n), range(n)] = 1
    return a


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B (of X A = B where not ``left``), A being triangular: the other triangle is not read.

    Args:
        A: (..., N, N).
        B: (..., N, K); batch axes broadcast.
        upper: which triangle.
        unitriangular: take 1 for the diagonal.
    """
    name = "solve_triangular"
    check_matrix(name, A, square=True)
    check_matrix(name, B)
    upper, left, unit = flag(name, "upper", upper), flag(name, "left", left), flag(name, "unitriangular", unitriangular)
    A.engine.check_owner(name, B)
    if not left:
        return swapped(solve_triangular(swapped(A), swapped(B), upper=not upper, unitriangular=unit))
    n = A.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with as many rows as A, got A: {A.shape} and B: {B.shape}")
    batch = broadcast_shapes(name, [A.shape[:-2], B.shape[:-2]])
    found: Tensor = call(SolveTriangular, expand(A, (*batch, n, n)), expand(B, (*batch, n, B.shape[-1])), upper, unit)
    return found


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> SolutionAndMatrix:
    """X of A X = b with a triangular A, and A: ``linalg.solve_triangular`` in PyTorch's older form."""
    transpose = flag("triangular_solve", "transpose", transpose)
    matrix, upper = (swapped(A), not upper) if transpose else (A, upper)
    return SolutionAndMatrix(solve_triangular(matrix, b, upper=upper, unitriangular=unitriangular), A.clone())


class CholeskySolve(Function):
    """X of A X = B, given a factor of A. As in PyTorch, the factor's gradient is not cut to its triangle."""

    def forward(self, b: Tensor, factor: Tensor, upper: bool) -> Tensor:
        self.upper = upper

        def compute(b: Array, factor: Array) -> Array:
            lower = np.swapaxes(np.triu(factor), -1, -2) if upper else np.tril(factor)
            found: Array = np.linalg.solve(np.swapaxes(lower, -1, -2), np.linalg.solve(lower, b))
            return found

        x: Tensor = on_host("cholesky_solve", compute, b, factor)
        self.save(factor, x)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        factor, x = self.saved
        db: Tensor = call(CholeskySolve, grad, factor, self.upper)
        product = matmul(db, swapped(x))
        both = -(product + swapped(product))
        return db, matmul(factor, both) if self.upper else matmul(both, factor)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = B, given the Cholesky factor L of A = L L' (A = L' L where ``upper``)."""
    name = "cholesky_solve"
    check_matrix(name, L, square=True)
    check_matrix(name, B)
    upper = flag(name, "upper", upper)
    L.engine.check_owner(name, B)
    n = L.shape[-1]
    if B.shape[-2] != n:
        raise ShapeError(f"[{name}] expected B with as many rows as L, got L: {L.shape} and B: {B.shape}")
    batch = broadcast_shapes(name, [L.shape[:-2], B.shape[:-2]])
    return call(CholeskySolve, expand(B, (*batch, *B.shape[-2:])), expand(L, (*batch, n, n)), upper)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A = L L' (A = L' L where ``upper``), given L."""
    check_matrix("cholesky_inverse", L, square=True)
    return cholesky_solve(expand(identity(L, L.shape[-1]), L.shape), L, upper)


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
        found: Tensor = swapped(inv(x)) * (grad * y).unsqueeze(-1).unsqueeze(-1)
        return found


def cofactors(x: Tensor) -> Tensor:
    """The matrices of cofactors, from singular values: no division by one of them."""

    def compute(a: Array) -> Array:
        u, s, vh = np.linalg.svd(a)
        n = a.shape[-1]
        others = np.stack([np.prod(np.delete(s, k, -1), -1) for k in range(n)], -1) if n else s
        sign = np.linalg.det(u) * np.linalg.det(vh)
        made: Array = (u * (others * sign[..., None])[..., None, :]) @ vh
        return made

    found: Tensor = on_host("det", compute, x)
    return found


class LogDeterminant(Function):
    """The sign of each determinant, and the logarithm of its absolute value, whose gradient is the inverse."""

    def forward(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        self.name = name
        sign, logarithm = on_host(name, lambda a: tuple(np.linalg.slogdet(a)), x)
        self.save(x)
        return sign, logarithm

    def backward(self, _: Any, grad: Tensor | None) -> Tensor:
        (x,) = self.saved
        found: Tensor
        if grad is None:  # the sign's gradient is 0
            found = x.engine.full(x.shape, 0, x.dtype)
            return found
        found = swapped(call(Inverse, x, self.name)) * grad.unsqueeze(-1).unsqueeze(-1)
        return found


def det(A: Tensor) -> Tensor:
    """The determinant of each of the matrices (..., N, N)."""
    return call(Determinant, check_matrix("det", A, square=True))


def slogdet(A: Tensor) -> SignAndLogarithm:
    """The sign of each determinant, and the logarithm of its absolute value."""
    return SignAndLogarithm(*call(LogDeterminant, check_matrix("slogdet", A, square=True), "slogdet"))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of each determinant; NaN where it is negative."""
    sign, logarithm = call(LogDeterminant, check_matrix("logdet", A, square=True), "logdet")
    return where(sign < 0, float("nan"), logarithm)


# -- pseudo-inverses ---------------------------------------------------------------------------------------------------


class PseudoInverse(Function):
    """The pseudo-inverse of each matrix. Gradient: Golub and Pereyra, SIAM J. Numer. Anal. 10(2), 1973."""

    def forward(self, x: Tensor, rtol: float | None, atol: float, hermitian: bool) -> Tensor:
        y: Tensor = on_host("pinv", lambda a: _pinv(a, rtol, atol, hermitian), x)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        yt, gt = swapped(y), swapped(grad)
        first = -matmul(matmul(yt, grad), yt)
        rows = matmul(gt - matmul(x, matmul(y, gt)), matmul(y, yt))
        columns = matmul(matmul(yt, y), gt - matmul(matmul(gt, y), x))
        return first + rows + columns


def _pinv(a: Array, rtol: float | None, atol: float, hermitian: bool) -> Array:
    if 0 in a.shape:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        a = np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    relative = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None and atol == 0 else (rtol or 0.0)
    least = np.maximum(atol, relative * s[..., :1])
    inverted = np.where(s > least, 1 / np.where(s > least, s, 1), 0)
    found: Array = np.swapaxes(vh, -1, -2) @ (inverted[..., :, None] * np.swapaxes(u, -1, -2))
    return found


def pinv(A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse of each of the matrices (..., M, N).

    Args:
        atol, rtol: singular values up to the larger of atol and rtol times the largest count as 0; by default rtol is
            max(M, N) times the dtype's epsilon.
        hermitian: the matrices are symmetric: their lower triangles are read.
    """
    check_matrix("pinv", A)
    hermitian = flag("pinv", "hermitian", hermitian)
    given = [v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for v in (rtol, atol)]
    relative, absolute = [None if v is None else number("pinv", "rtol and atol", v) for v in given]
    return call(PseudoInverse, A, relative, absolute or 0.0, hermitian)


def pinverse(A: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse of each of the matrices: ``linalg.pinv`` with ``rtol=rcond``."""
    return call(PseudoInverse, check_matrix("pinverse", A), number("pinverse", "rcond", rcond), 0.0, False)


# -- checked forms -----------------------------------------------------------------------------------------------------


class InverseAndInfo(NamedTuple):
    """An inverse, and 0 as LAPACK's report of success."""

    inverse: Tensor
    info: Tensor


class ResultAndInfo(NamedTuple):
    """A solution, and 0 as LAPACK's report of success."""

    result: Tensor
    info: Tensor


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseAndInfo:
    """``inv`` with a report for each matrix; a matrix without an inverse is an error here in either case."""
    flag("inv_ex", "check_errors", check_errors)
    return InverseAndInfo(inv(A), successes(A))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> ResultAndInfo:
    """``solve`` with a report for each matrix; a singular matrix is an error here in either case."""
    flag("solve_ex", "check_errors", check_errors)
    return ResultAndInfo(solve(A, B, left=left), successes(A))


def successes(A: Tensor) -> Tensor:
    """LAPACK's report of success, 0, for each matrix."""
    return A.engine.from_numpy(np.zeros(A.shape[:-2], np.int32))
