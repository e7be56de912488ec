"""Sums, means, variances and products along axes; PyTorch's names and semantics."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from alpha import dtypes
from alpha.arguments import flag, number
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.engine import Engine
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.axes import Axes, count_along, keeping, known_as, numpy_names, reduced_axes, restored
from alpha.functions.complex_numbers import view_as_real
from alpha.functions.elementwise import cast, eq, isnan, logical_not, ne, sqrt, where
from alpha.functions.joining import concat
from alpha.functions.operands import broadcast_view, call, check_float, check_inexact, check_tensor, compute
from alpha.functions.shape import expand
from alpha.functions.splitting import split
from alpha.launches import REDUCTIONS, VARIANCE
from alpha.tensor import Tensor

__all__ = [
    "count_nonzero",
    "mean",
    "nanmean",
    "nansum",
    "prod",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
]


# -- sums --------------------------------------------------------------------------------------------------------


class Sum(Function):
    """The sum over axes."""

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape, self.axes = x.shape, axes
        return x.engine.reduce("sum", x, axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        return broadcast_view(keeping(grad, self.shape, self.axes), self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return expand(restored(grad, self.shape, self.axes), self.shape)


class Mean(Function):
    """The mean over axes."""

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape, self.axes = x.shape, axes
        return x.engine.mean(x, axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        share = compute("div", grad, count_along(self.shape, self.axes))
        return broadcast_view(keeping(share, self.shape, self.axes), self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        share = restored(grad, self.shape, self.axes) / count_along(self.shape, self.axes)
        return expand(share, self.shape)


class Var(Function):
    """The variance over axes: sum((x - mean(x)) ** 2) / (n - correction)."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, correction: float, keepdims: bool) -> Tensor:
        self.axes = axes
        self.divisor = count_along(x.shape, axes) - correction
        var, mean = x.engine.variance(x, axes, correction, keepdims)
        self.save(x, mean)
        return var

    def backward(self, grad: Tensor) -> Tensor:
        x, mean = self.saved
        scale = 2 / self.divisor if self.divisor > 0 else math.nan
        return _var_slopes(keeping(grad, x.shape, self.axes), x, mean, scale)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x: Tensor = self.saved[0]
        scale = 2 / self.divisor if self.divisor > 0 else math.nan
        return (x - mean(x, self.axes, True)) * (restored(grad, x.shape, self.axes) * scale)


@pointwise
def _var_slopes(grad: Any, x: Any, mean: Any, scale: Any) -> Any:
    return (x - mean) * (grad * scale)


class Root(Function):
    """The square root of a variance; its gradient at 0 is 0, as in PyTorch."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        y = compute("sqrt", x)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return _root_slopes(grad, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return _root_slopes(grad, y)


@pointwise
def _root_slopes(grad: Any, y: Any) -> Any:
    return where(eq(y, 0.0), 0.0, grad * 0.5 / y)


def _product(x: Tensor, axes: Axes) -> Tensor:
    """The product over axes, which it keeps, by halves: its gradients are exact where factors are 0."""
    for axis in axes:
        if x.shape[axis] == 0:
            x = x.sum(axis, True) + 1.0
        while (length := x.shape[axis]) > 1:
            first, second, *rest = split(x, length // 2, axis)
            x = concat([first * second, *rest], axis)
    return x


class Prod(Function):
    """The product over axes; the gradient is exact where factors are 0.

    ``everything`` says that no axes were named: PyTorch then gives no gradient where two factors are 0, whatever else
    there is.
    """

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool, everything: bool) -> Tensor:
        self.axes, self.everything = axes, everything
        y = x.engine.reduce("prod", x, axes, keepdims)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        if not self.axes:  # Each number is a product by itself; a copy, for what is returned must be newly made.
            return compute("mul", grad, 1.0)
        grad, y = keeping(grad, x.shape, self.axes), keeping(y, x.shape, self.axes)
        engine: Engine = x.engine
        return engine.prod_grad(grad, x, y, self.axes, self.everything)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x = self.saved[0]
        if not self.axes:
            return grad * 1.0
        (dx,) = by_formula(lambda x: _product(x, self.axes), (x,), restored(grad, x.shape, self.axes))
        return grad.engine.full(x.shape, 0, x.dtype) if dx is None else dx


@in_float32
def sum(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Sum over an axis, several, or all (None, or as in PyTorch an empty list); of bools and integers int64."""
    if dtype is not None:
        return cast(sum(cast(input, dtype), dim, keepdim, axis=axis, keepdims=keepdims), dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("sum", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _SUM.launch_outside(input, dim, keepdim)
    if found is not None:
        return found
    check_tensor("sum", input)
    axes, kept = reduced_axes("sum", dim, input.ndim), flag("sum", "keepdim", keepdim)
    return known_as(_SUM, call(Sum, input, axes, kept), input, (dim, keepdim), (axes, kept))


def mean(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Mean over an axis, several, or all (None, or an empty list); NaN of nothing. DtypeError unless float."""
    if dtype is not None:
        input = cast(input, dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("mean", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _MEAN.launch_outside(input, dim, keepdim)
    if found is not None:
        return found
    check_inexact("mean", input)
    axes, kept = reduced_axes("mean", dim, input.ndim), flag("mean", "keepdim", keepdim)
    return known_as(_MEAN, call(Mean, input, axes, kept), input, (dim, keepdim), (axes, kept))


_SUM, _MEAN, _PROD, _NORM = (REDUCTIONS[op] for op in ("sum", "mean", "prod", "norm"))


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Variance over an axis, several, or all (None, or an empty list): by n - 1, by n unless ``unbiased``, or by
    n - ``correction``. ``var(input, False)`` is over all axes by n, as in PyTorch.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("var", dim, axis, keepdim, keepdims)
    if correction is None:
        if type(dim) is tuple and not dim:
            dim = None
        found = VARIANCE.launch_outside(input, dim, unbiased, keepdim) if type(dim) is not bool else None
        if found is not None:
            result: Tensor = found[0]
            return result
    return _var("var", input, dim, unbiased, keepdim, correction)


def _var(function: str, x: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: float | None) -> Tensor:
    """The variance, whose launches get to know the arguments as they were given."""
    check_inexact(function, x)
    if dtypes.is_complex(x.dtype):
        parts = view_as_real(x)  # the distances' squares are those of the parts together
        of_parts = [_var(function, parts[..., part], dim, unbiased, keepdim, correction) for part in (0, 1)]
        return of_parts[0] + of_parts[1]
    if type(dim) is bool:
        dim, unbiased = None, dim
    by: float = int(flag(function, "unbiased", unbiased))
    if correction is not None:
        by = number(function, "correction", correction)
        by = int(by) if by.is_integer() else by
    axes, kept = reduced_axes(function, dim, x.ndim), flag(function, "keepdim", keepdim)
    result = call(Var, x, axes, by, kept)
    if correction is None and not result.requires_grad:
        x.storage.engine.alias(VARIANCE, (x, axes, by, kept), VARIANCE, (x, dim, unbiased, keepdim))
    return result


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Square root of ``var``."""
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("std", dim, axis, keepdim, keepdims)
    if correction is None:
        if type(dim) is tuple and not dim:
            dim = None
        found = VARIANCE.launch_outside(input, dim, unbiased, keepdim) if type(dim) is not bool else None
        if found is not None:
            return sqrt(found[0])
    result = _var("std", input, dim, unbiased, keepdim, correction)
    return call(Root, result) if result.requires_grad else sqrt(result)


class VarMean(NamedTuple):
    """A variance, and the mean of the same numbers."""

    var: Tensor
    mean: Tensor


class StdMean(NamedTuple):
    """A standard deviation, and the mean of the same numbers."""

    std: Tensor
    mean: Tensor


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> VarMean:
    """``(var, mean)`` of the same arguments."""
    axes = None if isinstance(dim, bool) else dim
    return VarMean(var(input, dim, unbiased, keepdim, correction=correction), mean(input, axes, keepdim))


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> StdMean:
    """``(std, mean)`` of the same arguments."""
    axes = None if isinstance(dim, bool) else dim
    return StdMean(std(input, dim, unbiased, keepdim, correction=correction), mean(input, axes, keepdim))


@in_float32
def prod(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Product over an axis, several, or all (None, or an empty list); of bools and integers int64."""
    if dtype is not None:
        return cast(prod(cast(input, dtype), dim, keepdim, axis=axis, keepdims=keepdims), dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("prod", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _PROD.launch_outside(input, dim, keepdim)
    if found is not None:
        return found
    check_tensor("prod", input)
    axes, kept = reduced_axes("prod", dim, input.ndim), flag("prod", "keepdim", keepdim)
    return known_as(_PROD, call(Prod, input, axes, kept, dim is None), input, (dim, keepdim), (axes, kept))


# -- sums that leave something out -------------------------------------------------------------------------------


@pointwise
def _without_nan(x: Any) -> Any:
    return where(ne(x, x), 0.0, x)


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """``sum`` that counts NaN as 0."""
    check_tensor("nansum", input)
    if dtypes.is_complex(input.dtype):
        check_float("nansum", input)
    return sum(_without_nan(input) if dtypes.is_float(input.dtype) else input, dim, keepdim, dtype=dtype)


def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """``mean`` of the elements that are not NaN."""
    check_float("nanmean", input)
    count = sum(logical_not(isnan(input)), dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements differ from 0, over an axis, several, or all."""
    check_tensor("count_nonzero", input)
    axes = reduced_axes("count_nonzero", dim, input.ndim)
    found: Tensor = input.engine.reduce("sum", compute("ne", input.detach(), 0), axes, False)
    return found
