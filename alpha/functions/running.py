"""What is gathered along an axis on the way: running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import one_axis
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.expressions.functions import pointwise
from alpha.functions.activation import softplus
from alpha.functions.autocasting import in_float32
from alpha.functions.axes import ValuesAndIndices, numpy_names, of_line
from alpha.functions.elementwise import cast, eq, exp, gt, log, logical_and, lt, mul, where
from alpha.functions.joining import concat, flip
from alpha.functions.operands import call, check_float, check_tensor
from alpha.functions.sorting import found_at
from alpha.functions.splitting import split
from alpha.launches import CUMSUM
from alpha.tensor import Tensor

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


class Cumsum(Function):
    """Running sums; the gradient is the running sum from the other end."""

    fresh = True

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        return x.engine.cumsum(x, axis)

    def backward(self, grad: Tensor) -> Tensor:
        return from_end(cumsum, grad, self.axis)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return flip(cumsum(flip(grad, (self.axis,)), self.axis), (self.axis,))


def from_end(function: Callable[..., Tensor], x: Tensor, axis: int) -> Tensor:
    """A running function that begins at the other end of the axis."""
    return flip(function(flip(x, axis), axis), axis)


@in_float32
def cumsum(input: Tensor, dim: int | None = None, *, dtype: dtypes.DtypeLike | None = None, axis: Any = None) -> Tensor:
    """Running sums along an axis; of bools and integers int64."""
    if dtype is not None:
        return cast(cumsum(cast(input, dtype), dim, axis=axis), dtype)
    if axis is not None:
        dim, _ = numpy_names("cumsum", dim, axis, False, None)
    found: Tensor | None = CUMSUM.launch_outside(input, dim)
    if found is not None:
        return found
    check_tensor("cumsum", input)
    if not input.shape:
        return of_line(cumsum, input, dim)  # type: ignore[no-any-return]
    place = one_axis("cumsum", dim, input.ndim)
    result = call(Cumsum, input, place)
    if not result.requires_grad:
        input.storage.engine.alias(CUMSUM, (input, place), CUMSUM, (input, dim))
    return result


class Cumprod(Function):
    """Running products; the gradient is exact where factors are 0."""

    fresh = True

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        y = x.engine.cumprod(x, axis)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        """The running sum from the end of grad * y, over x.

        From the first 0 of a line on all products are 0. That 0 itself has the products with 1 in its place, up to the
        next 0; what is behind it has none.
        """
        x: Tensor = self.saved[0]
        y: Tensor = self.saved[1]
        is_zero = eq(x, 0.0)
        if not is_zero.any().item():
            return from_end(cumsum, grad * y, self.axis) / x
        is_first = logical_and(is_zero, eq(cumsum(is_zero, self.axis), 1))
        without = cumprod(where(is_first, 1.0, x), self.axis)
        before = from_end(cumsum, grad * y, self.axis) / where(is_zero, 1.0, x)
        return where(is_first, from_end(cumsum, grad * without, self.axis), before)

    def backward_in_graph(self, grad: Tensor) -> Tensor | None:
        return by_formula(lambda x: _by_doubling(x, self.axis, mul), self.saved[:1], grad)[0]


def _by_doubling(x: Tensor, axis: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Running combinations of 1, 2, 4, ... elements, in as many steps: what is differentiated is the combination."""
    length, reach = x.shape[axis], 1
    while reach < length:
        first, rest = split(x, [reach, length - reach], axis)
        before, _ = split(x, [length - reach, reach], axis)
        x = concat([first, combine(rest, before)], axis)
        reach *= 2
    return x


@in_float32
def cumprod(input: Tensor, dim: int, *, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """Running products along an axis; of bools and integers int64."""
    if dtype is not None:
        return cast(cumprod(cast(input, dtype), dim), dtype)
    check_tensor("cumprod", input)
    if not input.shape:
        found: Tensor = of_line(cumprod, input, dim)
        return found
    axis = one_axis("cumprod", dim, input.ndim)
    return call(Cumprod, input if dtypes.is_float(input.dtype) else cast(input, dtypes.info(input.dtype).total), axis)


def cummax(input: Tensor, dim: int) -> ValuesAndIndices:
    """The largest element so far along an axis, and where it is: the last of equal ones. NaN is the largest."""
    return _extremes_so_far("cummax", input, dim)


def cummin(input: Tensor, dim: int) -> ValuesAndIndices:
    """The smallest element so far along an axis, and where it is: the last of equal ones. NaN is the smallest."""
    return _extremes_so_far("cummin", input, dim)


def _extremes_so_far(name: str, x: Tensor, dim: int) -> ValuesAndIndices:
    check_tensor(name, x)
    if not x.shape:
        found: ValuesAndIndices = of_line(cummax if name == "cummax" else cummin, x, dim)
        return found
    axis = one_axis(name, dim, x.ndim)
    return found_at(x, *x.engine.running_extremes(x.detach(), axis, name == "cummax"), axis)


class LogCumsumExp(Function):
    """Logarithms of running sums of powers of e."""

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        with np.errstate(all="ignore"):
            y = x.engine.from_numpy(np.logaddexp.accumulate(x.engine.to_numpy(x), axis))
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        """exp(x) times the running sum from the end of grad * exp(-y), in logarithms, those of each sign alone."""
        x, y = self.saved
        parts = []
        for signed, is_there in ((grad, gt(grad, 0.0)), (-grad, lt(grad, 0.0))):
            logarithm = where(is_there, log(where(is_there, signed, 1.0)), -float("inf"))
            parts.append(exp(from_end(logcumsumexp, logarithm - y, self.axis) + x))
        return parts[0] - parts[1]

    def backward_in_graph(self, grad: Tensor) -> Tensor | None:
        return by_formula(lambda x: _by_doubling(x, self.axis, _log_of_sum), self.saved[:1], grad)[0]


@pointwise
def _log_of_sum(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y))."""
    return y + softplus(x - y)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(input))) along an axis, without overflow."""
    check_float("logcumsumexp", input)
    if not input.shape:
        found: Tensor = of_line(logcumsumexp, input, dim)
        return found
    return call(LogCumsumExp, input, one_axis("logcumsumexp", dim, input.ndim))
