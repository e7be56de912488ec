"""gemv and ger: a matrix and a vector, in one pass over the matrix (gNewGemv, gNewGer: Zhang and Zhang, ICTAI 2013)."""

from __future__ import annotations

from alpha.arguments import flag, number
from alpha.autograd import Function, enters_graph
from alpha.dtypes import FLOATS
from alpha.errors import DtypeError, ShapeError
from alpha.functions.inplace import write
from alpha.functions.operands import Number, call, check_float, is_number
from alpha.tensor import Tensor


class Gemv(Function):
    """A x, or the transposed A times x."""

    fresh = True

    def forward(self, a: Tensor, x: Tensor, trans: bool) -> Tensor:
        self.trans = trans
        self.save(x if self.needs[0] else None, a if self.needs[1] else None)
        return a.engine.gemv(a, x, trans)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, a = self.saved
        da = None
        if self.needs[0]:
            left, right = (x, grad) if self.trans else (grad, x)
            da = add_outer(left, right, self.accumulator(0))
        return da, grad.engine.gemv(a, grad, not self.trans) if self.needs[1] else None

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, a = self.saved
        da = None
        if self.needs[0]:
            left, right = (x, grad) if self.trans else (grad, x)
            da = left.unsqueeze(1) * right
        dx = (a if self.trans else a.T) @ grad if self.needs[1] else None
        return da, dx


class Ger(Function):
    """A + alpha * outer(x, y), into A itself where asked."""

    def forward(self, a: Tensor, x: Tensor, y: Tensor, alpha: float, in_place: bool = False) -> Tensor:
        self.alpha = alpha
        self.save(x if self.needs[2] else None, y if self.needs[1] else None)
        return a.engine.ger(x, y, alpha, a, a if in_place else None)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = self.saved
        engine = grad.engine
        dx = engine.elementwise("mul", engine.gemv(grad, y), self.alpha) if self.needs[1] else None
        dy = engine.elementwise("mul", engine.gemv(grad, x, True), self.alpha) if self.needs[2] else None
        return grad if self.needs[0] else None, dx, dy

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = self.saved
        dx = grad @ y * self.alpha if self.needs[1] else None
        dy = grad.T @ x * self.alpha if self.needs[2] else None
        return grad if self.needs[0] else None, dx, dy


def add_outer(x: Tensor, y: Tensor, total: Tensor | None) -> Tensor:
    """outer(x, y), added into a gradient that has arrived already where there is one."""
    if total is not None and total.shape == (x.shape[0], y.shape[0]):
        return x.engine.ger(x, y, 1.0, total, total)
    return x.engine.ger(x, y)


def gemv(A: Tensor, x: Tensor, trans: bool = False) -> Tensor:
    """``A @ x``, or ``A.T @ x`` where ``trans``: A (M, N) is read once, as it lies in memory.

    x: (N,), or (M,) where ``trans``; returns (M,), or (N,). ShapeError, DtypeError, EngineError for what does not fit.
    """
    if not _fits(A, x):
        _check("gemv", A, x)
    trans = flag("gemv", "trans", trans)
    if x.shape[0] != A.shape[0 if trans else 1]:
        raise ShapeError(
            f"[gemv] expected x of A.shape[{0 if trans else 1}] elements, got A: {A.shape} and x: {x.shape}: "
            f"{'leave trans out' if trans else 'trans=True takes A.T'}, or give a vector of that length"
        )
    return call(Gemv, A, x, trans) if enters_graph(A, x) else A.storage.engine.gemv(A, x, trans)


def ger(A: Tensor, x: Tensor, y: Tensor, alpha: Number = 1.0) -> Tensor:
    """``A + alpha * outer(x, y)`` as a new tensor: A (M, N), x (M,), y (N,), alpha a number."""
    A, x, y, alpha = _rank_one("ger", A, x, y, alpha)
    return call(Ger, A, x, y, alpha) if enters_graph(A, x, y) else A.engine.ger(x, y, alpha, A)


def ger_(A: Tensor, x: Tensor, y: Tensor, alpha: Number = 1.0) -> Tensor:
    """Adds ``alpha * outer(x, y)`` to A in place, and returns A: BLAS's ger."""
    A, x, y, alpha = _rank_one("ger_", A, x, y, alpha)
    if x.storage is A.storage:
        x = x.clone()
    if y.storage is A.storage:
        y = y.clone()
    if A._base is not None or 0 in A.strides or enters_graph(A, x, y):
        return write("ger_", A, Ger, x, y, alpha, in_place=True)
    A.engine.ger(x, y, alpha, A, A)  # nothing to record: small updates are made often
    A.storage.touch()
    return A


def _rank_one(name: str, A: Tensor, x: Tensor, y: Tensor, alpha: Number) -> tuple[Tensor, Tensor, Tensor, float]:
    if not (_fits(A, x) and _fits(A, y)):
        _check(name, A, x, y)
    if A.shape != (x.shape[0], y.shape[0]):
        raise ShapeError(
            f"[{name}] expected A of shape (len(x), len(y)), got A: {A.shape}, x: {x.shape} and y: {y.shape}"
        )
    if not is_number(alpha):
        raise DtypeError(f"[{name}] expected alpha as a number, got {type(alpha).__name__}: use .item()")
    return A, x, y, alpha if type(alpha) is float else number(name, "alpha", alpha)


def _fits(A: Tensor, x: Tensor) -> bool:
    """Whether they are a matrix and a vector of one float dtype on one engine: small products are called often."""
    return (
        type(A) is type(x) is Tensor
        and A.dtype is x.dtype  # else _check looks closer
        and A.dtype in FLOATS
        and len(A.shape) == 2
        and len(x.shape) == 1
        and A.storage.engine is x.storage.engine
    )


def _check(name: str, A: Tensor, *vectors: Tensor) -> None:
    """A matrix and vectors of one float dtype on one engine."""
    check_float(name, A, *vectors)
    A.engine.check_owner(name, *vectors)
    for x in vectors:
        if A.ndim != 2 or x.ndim != 1:
            raise ShapeError(f"[{name}] expected a matrix and vectors, got A: {A.shape} and {x.shape}: reshape them")
        if x.dtype != A.dtype:
            raise DtypeError(
                f"[{name}] expected tensors of one dtype, got {A.dtype} and {x.dtype}: cast one with .float() or "
                ".double()"
            )
