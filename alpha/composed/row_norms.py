"""Layer and RMS norm over the last axes, and their gradients, in the dtype of x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def row_norm(
    engine: Engine, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float, centered: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """In two passes; the statistics are the mean, where it is subtracted, and 1 / sqrt(var + eps)."""
    do, over = engine.elementwise, _last(x, axes)
    mean = (engine.mean(x, over, True),) if centered else ()
    normal = do("sub", x, *mean) if centered else x
    var = engine.mean(do("square", normal), over, True)
    inverse_std = do("reciprocal", do("sqrt", do("add", var, eps)))
    y = do("mul", normal, inverse_std)
    y = y if weight is None else do("mul", y, weight)
    return (y if bias is None else do("add", y, bias)), (*mean, inverse_std)


def row_norm_grad(
    engine: Engine,
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    statistics: tuple[Tensor, ...],
    axes: int,
    centered: bool,
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """dx = (g - mean(g) - normal * mean(g * normal)) / std, with g = dy * weight."""
    do, over, inverse_std = engine.elementwise, _last(x, axes), statistics[-1]
    normal = do("mul", do("sub", x, statistics[0]) if centered else x, inverse_std)
    product = do("mul", dy, normal)
    dx = dweight = None
    if needs[1]:
        dweight = _summed(engine, product, axes)
    if needs[0]:
        g = dy if weight is None else do("mul", dy, weight)
        share = engine.mean(product if weight is None else do("mul", product, weight), over, True)
        dx = do("sub", g, engine.mean(g, over, True)) if centered else g
        dx = do("mul", do("sub", dx, do("mul", normal, share)), inverse_std)
    return dx, dweight, _summed(engine, dy, axes) if needs[2] else None


def _last(x: Tensor, axes: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - axes, x.ndim))


def _summed(engine: Engine, x: Tensor, axes: int) -> Tensor:
    """The sums over all but the last axes, as a tensor of its own."""
    if axes == 1 and x.ndim > 1:
        return engine.channel_sum(x)
    if axes < x.ndim:
        return engine.reduce("sum", x, tuple(range(x.ndim - axes)), False)
    out = engine.empty_like(x)
    engine.copy(x, out)
    return out
