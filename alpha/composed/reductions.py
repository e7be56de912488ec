"""Means and Euclidean norms over axes, and the gradient of products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from alpha import dtypes
from alpha.composed.arrays import cast

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def mean(engine: Engine, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The sum, divided."""
    total = engine.reduce("sum", x, axes, keepdims)
    return engine.elementwise("div", total, math.prod(x.shape[axis] for axis in axes), out=total)


def variance(
    engine: Engine, x: Tensor, axes: tuple[int, ...], correction: float, keepdims: bool
) -> tuple[Tensor, Tensor]:
    """By the corrected two-pass algorithm.

    The mean is rounded, and what is left of the deviations' sum says by how much (Chan, Golub and LeVeque 1983,
    equation 1.7): equal numbers have a variance of exactly 0, whatever their mean is rounded to.
    """
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = float(count - correction) if count > correction else math.nan
    mean = engine.mean(x, axes, True)
    deviations = engine.elementwise("sub", x, mean)
    error = engine.mean(deviations, axes, True)
    total = engine.reduce("sum", engine.elementwise("square", deviations, out=deviations), axes, True)
    finite = engine.elementwise("isfinite", error)
    rest = engine.elementwise("where", finite, error, 0.0)
    lost = engine.elementwise("mul", engine.elementwise("mul", rest, rest), float(count))
    squares = engine.elementwise("maximum", engine.elementwise("sub", total, lost), 0.0)
    var = engine.elementwise("div", squares, divisor)
    if not keepdims:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        var = var.strided(var.offset, tuple([x.shape[a] for a in kept]), tuple([var.strides[a] for a in kept]))
    return var, engine.elementwise("add", mean, rest)


def euclidean_norm(engine: Engine, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The root of the sum of the squares."""
    total = engine.reduce("sum", engine.elementwise("square", x), axes, keepdims)
    return engine.elementwise("sqrt", total, out=total)


def prod_grad(engine: Engine, grad: Tensor, x: Tensor, y: Tensor, axes: tuple[int, ...], everything: bool) -> Tensor:
    """The product divided by each factor, or where there is a 0 the product of the others."""
    do, whole = engine.elementwise, tuple(range(x.ndim))
    zero = do("eq", x, 0)
    some = engine.reduce("any", zero, whole, True)
    others = do("where", some, _product_of_others(engine, x, zero, axes), do("div", y, x))
    slopes = do("mul", others, grad)
    if not everything:
        return slopes
    several = do("gt", engine.reduce("sum", zero, whole, True), 1)
    return do("where", several, 0.0, slopes)


def _product_of_others(engine: Engine, x: Tensor, zero: Tensor, axes: tuple[int, ...]) -> Tensor:
    """For each element the product of the others over axes, of zeros, infinities and NaN too.

    The ordinary factors' product is divided by each, in float64, where few products overflow; an infinity counts as its
    sign. What zeros, infinities and NaN among the others make of it is decided by their number.
    """
    do = engine.elementwise
    unknown = do("ne", x, x)
    infinite = do("logical_not", do("logical_or", do("isfinite", x), unknown))
    factors = cast(engine, do("where", infinite, do("sign", x), x), dtypes.widest_float)
    factors = do("where", do("logical_or", zero, unknown), 1.0, factors)
    others = do("div", engine.reduce("prod", factors, axes, True), factors)
    for found, effect in ((zero, 0.0), (infinite, math.inf), (unknown, math.nan)):
        count = do("sub", engine.reduce("sum", found, axes, True), cast(engine, found, dtypes.default_int))
        # Finite factors' product may have overflowed; 0 times it is still 0, and not NaN.
        changed = do("mul", do("sign", others) if found is zero else others, effect)
        others = do("where", do("gt", count, 0), changed, others)
    return cast(engine, others, x.dtype)
