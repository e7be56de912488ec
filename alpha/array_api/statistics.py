"""The standard's functions that reduce axes, and those that run along one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from alpha import dtypes
from alpha.arguments import flag, one_axis
from alpha.array_api.promotion import Axis, over_axes, promoted
from alpha.errors import ShapeError
from alpha.functions import extremes, grids, reduction, running
from alpha.functions.casting import cast
from alpha.functions.joining import concat
from alpha.functions.operands import check_tensor
from alpha.functions.shape import reshape
from alpha.tensor import Tensor

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean",
    "min", "prod", "std", "sum", "var",
]  # fmt: skip

DtypeLike = dtypes.DtypeLike | None

# -- reductions ------------------------------------------------------------------------------------------------------


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes, or of all; NaN where there is one."""
    return over_axes("max", extremes.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes, or of all; NaN where there is one."""
    return over_axes("min", extremes.amin, x, axis, keepdims)


def sum(x: Tensor, /, *, axis: Axis = None, dtype: DtypeLike = None, keepdims: bool = False) -> Tensor:
    """The sum over axes, or of all; of integers int64, unless a dtype is given."""
    return over_axes("sum", partial(reduction.sum, dtype=dtype), x, axis, keepdims)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: DtypeLike = None, keepdims: bool = False) -> Tensor:
    """The product over axes, or of all; of integers int64, unless a dtype is given."""
    return over_axes("prod", partial(_product, dtype=dtype), x, axis, keepdims)


def _product(x: Tensor, axes: Any, keepdims: bool, dtype: DtypeLike) -> Tensor:
    return reduction.prod(x, axes, keepdims, dtype=dtype)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over axes, or of all, of floats."""
    return over_axes("mean", reduction.mean, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over axes, or of all: the sum of squared distances from the mean by n - ``correction``."""
    return over_axes("var", partial(_spread, reduction.var, correction), x, axis, keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of ``var``."""
    return over_axes("std", partial(_spread, reduction.std, correction), x, axis, keepdims)


def _spread(function: Callable[..., Tensor], correction: float, x: Tensor, axes: Any, keepdims: bool) -> Tensor:
    return function(x, axes, keepdim=keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element over axes, or of all, differs from 0."""
    return over_axes("all", extremes.all, x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element over axes, or of all, differs from 0."""
    return over_axes("any", extremes.any, x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements over axes, or of all, differ from 0."""
    check_tensor("count_nonzero", x)
    return over_axes("count_nonzero", reduction.sum, cast(x, dtypes.bool_), axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element along an axis, or in the flattened array; of equal ones the first."""
    return extremes.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element along an axis, or in the flattened array; of equal ones the first."""
    return extremes.argmin(x, axis, keepdims)


# -- along an axis ---------------------------------------------------------------------------------------------------


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DtypeLike = None, include_initial: bool = False
) -> Tensor:
    """Running sums along an axis, of integers in int64; ``include_initial`` puts a 0 before them."""
    return _running("cumulative_sum", running.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DtypeLike = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis, of integers in int64; ``include_initial`` puts a 1 before them."""
    return _running("cumulative_prod", running.cumprod, 1, x, axis, dtype, include_initial)


def _running(
    name: str,
    function: Callable[..., Tensor],
    initial: int,
    x: Tensor,
    axis: int | None,
    dtype: DtypeLike,
    include_initial: bool,
) -> Tensor:
    """What a function gathers along an axis, perhaps behind what it begins with."""
    check_tensor(name, x)
    if axis is None and x.ndim > 1:
        raise ShapeError(f"[{name}] expected an axis for an array of {x.ndim} axes, got None")
    if not x.ndim:
        x = reshape(x, (1,)) if axis is None else x
    place = one_axis(name, 0 if axis is None else axis, x.ndim)
    found = function(x, place, dtype=dtype)
    if not flag(name, "include_initial", include_initial):
        return found
    shape = (*x.shape[:place], 1, *x.shape[place + 1 :])
    first = found.engine.full(shape, initial, found.dtype)
    return concat([first, found], place)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along an axis, ``n`` times; other arrays are put before and behind x first."""
    x, *others = promoted([x, *[part for part in (prepend, append) if part is not None]])
    rest = iter(others)
    first = None if prepend is None else next(rest)
    return grids.diff(x, n, axis, first, None if append is None else next(rest))
