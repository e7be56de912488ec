"""Medians and quantiles, and how rows vary together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number, one_axis, one_of, whole
from alpha.conversion import tensor
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.axes import ValuesAndIndices, check_not_empty, of_line
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.complex_numbers import real, view_as_complex, view_as_real
from alpha.functions.diagonals import diagonal
from alpha.functions.elementwise import cast, clamp, eq, floor, isnan, sqrt, where
from alpha.functions.linalg import matmul
from alpha.functions.lookups import gather
from alpha.functions.nothing import nothing
from alpha.functions.operands import check_float, check_room, check_tensor
from alpha.functions.reduction import sum
from alpha.functions.shape import broadcast_to, reshape, transpose
from alpha.functions.sorting import picked, sort
from alpha.functions.views import movedim
from alpha.tensor import Tensor

__all__ = [
    "corrcoef",
    "cov",
    "median",
    "nanmedian",
    "nanquantile",
    "quantile",
]

# -- places in the order of the elements -------------------------------------------------------------------------


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of all elements, of an even number the lower one; along an axis ``(values, indices)``.

    NaN where there is one. The gradient of the median of all is shared by equal elements.
    """
    return _median("median", input, dim, keepdim)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """``median`` of the elements that are not NaN; NaN where there are none."""
    return _median("nanmedian", input, dim, keepdim)


def _median(name: str, x: Tensor, dim: int | None, keepdim: bool) -> Any:
    check_tensor(name, x)
    kept = flag(name, "keepdim", keepdim)
    if dim is None:
        return _median_of_all(name, x)
    if not x.shape:
        found: ValuesAndIndices = of_line(median if name == "median" else nanmedian, x, dim, True)
        return found
    axis = one_axis(name, dim, x.ndim)
    check_not_empty(name, x, (axis,))
    return picked(x, _median_places(name, x.detach(), axis), axis, kept)


def _median_places(name: str, x: Tensor, axis: int) -> Tensor:
    """The index of each line's median, with the axis at length 1."""
    length = x.shape[axis]
    if not dtypes.is_float(x.dtype):
        return x.engine.rank(x, axis, (length - 1) // 2)
    unknown = sum(isnan(x), axis, True)
    if not unknown.any().item():
        return x.engine.rank(x, axis, (length - 1) // 2)
    order = x.engine.sort(x, axis)[1]  # NaN last
    known = length - unknown
    if name == "median":
        place = where(eq(unknown, 0), (length - 1) // 2, clamp(known, max=length - 1))
    else:
        place = clamp((known - 1) // 2, min=0)
    return gather(order, axis, place)


def _median_of_all(name: str, x: Tensor) -> Tensor:
    if not x.numel():
        if not dtypes.is_float(x.dtype):
            raise ShapeError(f"[{name}] expected elements, got shape {x.shape}")
        return nothing((), x, value=math.nan)
    line = reshape(x, (x.numel(),))
    value = gather(line.detach(), 0, _median_places(name, line.detach(), 0))
    if not x.requires_grad:
        return reshape(value, ())
    if isnan(value).item():
        is_median = isnan(line.detach())
    else:
        is_median = eq(line.detach(), value)
    # Elements equal to the median: their mean is the median, and shares its gradient.
    return sum(where(is_median, line, 0.0)) / sum(is_median)


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The value below which a share ``q`` (a number, or a vector of several) of the elements lie, along an axis.

    Without an axis of all elements. Several shares are a new first axis. NaN where there is one. ``interpolation``
    says what lies between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """``quantile`` of the elements that are not NaN; NaN where there are none."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _quantile(name: str, x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    check_float(name, x)
    kept = flag(name, "keepdim", keepdim)
    shares = q if isinstance(q, Tensor) else tensor(number(name, "q", q), x.dtype, engine=x.engine)
    if shares.ndim > 1 or shares.dtype != x.dtype:
        raise ShapeError(f"[{name}] expected q as a number or a vector of {x.dtype}, got {shares.dtype} {shares.shape}")
    values = np.atleast_1d(x.engine.to_numpy(shares.detach()))
    if not ((values >= 0) & (values <= 1)).all():
        raise ArgumentError(f"[{name}] expected q within 0..1, got {described(values.tolist())}")
    one_of(name, "interpolation", interpolation, _INTERPOLATIONS)
    if not x.numel():
        raise ShapeError(f"[{name}] expected elements, got shape {x.shape}")
    axis = 0 if dim is None or not x.shape else one_axis(name, dim, x.ndim)
    line = reshape(x, (x.numel(),)) if dim is None or not x.shape else movedim(x, axis, -1)
    found = movedim(_interpolated(name, sort(line).values, shares, interpolation), -1, 0)  # (shares, ...)
    ones = (1,) * x.ndim if dim is None else tuple([1 if a == axis else n for a, n in enumerate(x.shape)])
    left = ones if kept else found.shape[1:]
    return reshape(found, (*shares.shape, *left))


def _interpolated(name: str, ordered: Tensor, q: Tensor, how: str) -> Tensor:
    """Between the elements of ordered lines, the last axis, one value for each share."""
    length = ordered.shape[-1]
    shares = reshape(q, (-1,))
    shape = (*ordered.shape[:-1], shares.shape[0])
    unknown = sum(isnan(ordered.detach()), -1, True)
    if name == "nanquantile":
        place = broadcast_to(shares * cast(clamp(length - 1 - unknown, min=0), ordered.dtype), shape)
    else:  # NaN is last, and takes the whole line
        place = broadcast_to(where(eq(unknown, 0), shares * float(length - 1), float(length - 1)), shape)
    below = place.detach()
    if how == "nearest":
        return gather(ordered, -1, _rounded_to_even(below))
    below = floor(below)
    above = -floor(-place.detach())
    if how in ("lower", "higher"):
        return gather(ordered, -1, (below if how == "lower" else above).long())
    low, high = (gather(ordered, -1, part.long()) for part in (below, above))
    weight = place - below if how == "linear" else 0.5
    return where(eq(below, above), low, low + (high - low) * weight)


def _rounded_to_even(x: Tensor) -> Tensor:
    """The nearest whole numbers, of halves the even ones."""
    return x.engine.from_numpy(np.rint(x.engine.to_numpy(x)).astype(np.int64))


# -- how rows vary together --------------------------------------------------------------------------------------


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances of the rows of a matrix, whose columns are observations; of a vector the variance.

    ``fweights``: how often each observation is counted; ``aweights``: its importance. What is divided by is the sum of
    the weights, less ``correction``.
    """
    check_tensor("cov", input)
    if input.ndim > 2:
        raise ShapeError(f"[cov] expected a matrix or a vector, got shape {input.shape}")
    by = whole("cov", "correction", correction)
    check_room(input.engine, input.shape, dtypes.default_float)  # for what lies around the mean
    rows = reshape(input, (1, input.numel())) if input.ndim < 2 else input
    rows = rows if dtypes.has_gradients(rows.dtype) else cast(rows, dtypes.default_float)
    weights = None if fweights is None else cast(_weights("fweights", fweights, rows, True), rows.dtype)
    if aweights is not None:
        importance = _weights("aweights", aweights, rows, False)
        weights = cast(importance, rows.dtype) if weights is None else weights * importance
    if weights is None:
        centred = rows - sum(rows, 1, True) / rows.shape[1]
        total: Any = rows.shape[1] - by
        product = matmul(centred, conjugate(transpose(centred, 0, 1)))
        covariances = product / (total if total > 0 else 0)
    else:
        whole_weight = sum(weights)
        centred = rows - sum(rows * weights, 1, True) / whole_weight
        spread = whole_weight if aweights is None else sum(weights * aweights) / whole_weight
        total = whole_weight - by * (1 if aweights is None else spread)
        covariances = matmul(centred * weights, conjugate(transpose(centred, 0, 1))) / clamp(total, min=0)
    return reshape(covariances, ()) if rows.shape[0] == 1 else covariances


def _weights(name: str, weights: Tensor, rows: Tensor, integers: bool) -> Tensor:
    """Weights of observations, checked."""
    check_tensor("cov", weights)
    fits = weights.ndim <= 1 and weights.numel() == rows.shape[1]
    if not fits or dtypes.is_integer(weights.dtype) != integers:
        kind = "integers" if integers else "floats"
        raise ShapeError(f"[cov] expected {name} as {rows.shape[1]} {kind}, got {weights.dtype} {weights.shape}")
    if (weights < 0).any().item():
        raise ArgumentError(f"[cov] expected {name} >= 0, got negative ones")
    return weights


def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows of a matrix, within -1..1; of a vector 1."""
    c = cov(input)
    if not c.shape:
        return c / c
    if dtypes.is_complex(c.dtype):
        deviations = sqrt(real(reshape(diagonal(c), (-1,))))
        parts = view_as_real(c / reshape(deviations, (-1, 1)) / deviations)
        return view_as_complex(clamp(parts, -1.0, 1.0))
    deviations = sqrt(reshape(diagonal(c), (-1,)))
    return clamp(c / reshape(deviations, (-1, 1)) / deviations, -1.0, 1.0)
