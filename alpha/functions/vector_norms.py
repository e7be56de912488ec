"""Norms over axes, distances and the logarithm of a sum of powers of e."""

from __future__ import annotations

import math
from typing import Any

from alpha import dtypes
from alpha.arguments import flag, number, one_axis
from alpha.autograd import Function
from alpha.errors import ArgumentError
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.axes import (
    Axes,
    check_not_empty,
    count_along,
    keeping,
    known_as,
    numpy_names,
    reduced_axes,
    restored,
)
from alpha.functions.complex_numbers import real
from alpha.functions.elementwise import abs as _abs
from alpha.functions.elementwise import cast, eq, exp, gt, isfinite, log, pow, sign, sub, where
from alpha.functions.extremes import Extreme
from alpha.functions.nothing import nothing
from alpha.functions.operands import call, check_inexact, check_tensor, compute
from alpha.launches import REDUCTIONS
from alpha.tensor import Tensor

__all__ = ["dist", "logsumexp", "norm", "renorm"]

_NORM = REDUCTIONS["norm"]


class LogSumExp(Function):
    """log(sum(exp(x))) over axes."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.axes = axes
        top = x.engine.reduce("max", x, axes, True)
        total = x.engine.reduce("sum", _powers(x, top), axes, True)
        kept = _logarithm(total, top)
        self.save(x, kept)
        return kept if keepdims else _dropped(kept, axes)

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        kept = keeping(grad, x.shape, self.axes)
        return _shares(kept, x, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, _ = self.saved
        return exp(x - logsumexp(x, self.axes, True)) * restored(grad, x.shape, self.axes)


@pointwise
def _powers(x: Any, top: Any) -> Any:
    """Powers of e that do not overflow."""
    return exp(x - where(isfinite(top), top, 0.0))


@pointwise
def _logarithm(total: Any, top: Any) -> Any:
    """The logarithm of what ``_powers`` sum to, before they were made smaller."""
    return log(total) + where(isfinite(top), top, 0.0)


@pointwise
def _shares(grad: Any, x: Any, y: Any) -> Any:
    return exp(x - y) * grad


def _dropped(x: Tensor, axes: Axes) -> Tensor:
    kept = [a for a in range(x.ndim) if a not in axes]
    return x.strided(x.offset, tuple(x.shape[a] for a in kept), tuple(x.strides[a] for a in kept))


class EuclideanNorm(Function):
    """sqrt(sum(x * x)) over axes; its gradient at 0 is 0."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.axes = axes
        if count_along(x.shape, axes) == 1:  # |x|, also where the square has no number
            y = x.engine.reduce("sum", compute("abs", x), axes, keepdims)
        else:
            y = x.engine.euclidean_norm(x, axes, keepdims)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        grad, y = keeping(grad, x.shape, self.axes), keeping(y, x.shape, self.axes)
        return _norm_slopes(grad, x, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        return _norm_slopes(restored(grad, x.shape, self.axes), x, restored(y, x.shape, self.axes))


@pointwise
def _norm_slopes(grad: Any, x: Any, y: Any) -> Any:
    return where(eq(y, 0.0), 0.0, x / y) * grad


class NonZeros(Function):
    """The number of elements that differ from 0, in their own dtype; its gradient is 0."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape = x.shape
        return x.engine.reduce("sum", cast(compute("ne", x, 0), x.dtype), axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        out = grad.engine.empty(self.shape, grad.dtype)
        grad.engine.fill(out, 0)
        return out

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return grad.engine.full(self.shape, 0, grad.dtype)


class PowerNorm(Function):
    """sum(|x| ** p) ** (1 / p) over axes, p other than 0, 2 and infinities; where it is 0 so is its gradient."""

    fresh = True

    def forward(self, x: Tensor, p: float, axes: Axes, keepdims: bool) -> Tensor:
        self.p, self.axes = p, axes
        size = compute("abs", x)
        if p == 1 or count_along(x.shape, axes) == 1:
            y = x.engine.reduce("sum", size, axes, keepdims)
        else:
            y = compute("pow", x.engine.reduce("sum", compute("pow", size, p), axes, keepdims), 1 / p)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        """sign(x) * (|x| / norm) ** (p - 1) * grad, as factors of which none overflows where PyTorch's does not."""
        x, y = self.saved
        p, grad, y = self.p, keeping(grad, x.shape, self.axes), keeping(y, x.shape, self.axes)
        if p == 1:
            return compute("mul", compute("sign", x), grad)
        size = compute("abs", x)
        if p < 1:
            steep = compute("where", compute("eq", x, 0), 0.0, compute("pow", size, p - 1))
            return compute("mul", compute("mul", compute("mul", compute("sign", x), steep), grad), _raised(y, 1 - p))
        slope = compute("mul", compute("sign", x), _raised(size, p - 1)) if p < 2 else None
        if slope is None:
            slope = compute("mul", x, _raised(size, p - 2))
        scale = compute("where", compute("eq", y, 0), 0.0, compute("div", grad, _raised(y, p - 1)))
        return compute("mul", slope, scale)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        grad, y = restored(grad, x.shape, self.axes), restored(y, x.shape, self.axes)
        if self.p == 1:
            return sign(x) * grad
        power = where(eq(x, 0.0), 0.0, sign(x) * pow(where(eq(x, 0.0), 1.0, _abs(x)), self.p - 1))
        return where(eq(y, 0.0), 0.0, power * grad / pow(where(eq(y, 0.0), 1.0, y), self.p - 1))


def _raised(x: Tensor, p: float) -> Tensor:
    """x >= 0 to a power."""
    return x if p == 1 else compute("sqrt", x) if p == 0.5 else compute("pow", x, p)


@in_float32
def logsumexp(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """log(sum(exp(input))) over an axis, several, or all (None, or an empty list), without overflow.

    Of bools and integers float32.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("logsumexp", dim, axis, keepdim, keepdims)
    check_tensor("logsumexp", input)
    input = input if dtypes.has_gradients(input.dtype) else cast(input, dtypes.default_float)
    keepdim = flag("logsumexp", "keepdim", keepdim)
    axes = reduced_axes("logsumexp", dim, input.ndim)
    if not count_along(input.shape, axes):
        left = tuple(1 if a in axes else n for a, n in enumerate(input.shape) if keepdim or a not in axes)
        return nothing(left, input, value=-math.inf)
    if dtypes.is_complex(input.dtype):
        return _complex_logsumexp(input, axes, keepdim)
    return call(LogSumExp, input, axes, keepdim)


def _complex_logsumexp(x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    """The same of complex numbers, whose powers are as large as those of their real parts."""
    top = real(x.detach()).contiguous().amax(axes, True) if axes else real(x.detach())
    top = where(isfinite(top), top, 0.0)
    total = exp(x - top).sum(axes, True) if axes else exp(x - top)
    found = log(total) + top
    left = tuple([n for a, n in enumerate(found.shape) if keepdim or a not in axes])
    return found.reshape(left)


@in_float32
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Vector norm (sum(|input| ** p)) ** (1 / p) over an axis, several, or all (None, or an empty list).

    ``p`` is any number, or ``"fro"`` for 2: infinity gives the largest size, minus infinity the smallest, 0 the number
    of elements that differ from 0. ShapeError for no elements where p is negative or infinite: nothing is the least or
    the largest.
    """
    if isinstance(p, str) and p == "nuc":
        from alpha.functions.matrices import matrix_norm  # here: it imports this module

        return matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    if dtype is not None:
        input = cast(input, dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("norm", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    if p is None or (isinstance(p, str) and p == "fro"):
        p = 2
    if type(p) in (int, float) and p == 2:
        found: Tensor | None = _NORM.launch_outside(input, dim, keepdim)
        if found is not None:
            return found
    check_inexact("norm", input)
    if dtypes.is_complex(input.dtype):
        input = _abs(input)
    p, kept = number("norm", "p", p), flag("norm", "keepdim", keepdim)
    axes = reduced_axes("norm", dim, input.ndim)
    if math.isnan(p):
        raise ArgumentError(f"[norm] expected p as a number (math.inf for the largest), got {p!r}")
    if p < 0 or p == math.inf:
        check_not_empty("norm", input, axes)
    if p == 2:
        return known_as(_NORM, call(EuclideanNorm, input, axes, kept), input, (dim, keepdim), (axes, kept))
    if math.isinf(p):
        return call(Extreme, _abs(input), "max" if p > 0 else "min", axes, kept)
    if p == 0:
        return call(NonZeros, input, axes, kept)
    return call(PowerNorm, input, float(p), axes, kept)


@in_float32
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference of two tensors, which broadcast."""
    return norm(sub(input, other), p)


@in_float32
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """input with each entry along an axis made smaller where its norm is larger than ``maxnorm``."""
    check_inexact("renorm", input)
    axis, most = one_axis("renorm", dim, input.ndim), number("renorm", "maxnorm", maxnorm)
    if number("renorm", "p", p) <= 0 or most < 0 or input.ndim < 2:
        raise ArgumentError(
            f"[renorm] expected p > 0, maxnorm >= 0 and at least 2 axes, got {p}, {maxnorm} and {input.shape}"
        )
    length = norm(input, p, tuple([a for a in range(input.ndim) if a != axis]), True)
    return input * where(gt(length, most), most / (length + 1e-7), 1.0)
