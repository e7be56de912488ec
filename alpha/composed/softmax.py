"""Softmax and its logarithm along an axis, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def softmax(engine: Engine, x: Tensor, axis: int, log: bool) -> Tensor:
    """The largest number is subtracted first, so that no exponential overflows."""
    do = engine.elementwise
    if x.shape[axis] == 0:
        return engine.empty_like(x)
    y = do("sub", x, engine.reduce("max", x, (axis,), True))
    powers = do("exp", y)
    total = engine.reduce("sum", powers, (axis,), True)
    return do("sub", y, do("log", total), out=y) if log else do("div", powers, total, out=powers)


def softmax_grad(engine: Engine, dy: Tensor, y: Tensor, axis: int, log: bool) -> Tensor:
    """(dy - sum(dy * y)) * y, of the logarithm dy - exp(y) * sum(dy)."""
    do = engine.elementwise
    if log:
        return do("sub", dy, do("mul", do("exp", y), engine.reduce("sum", dy, (axis,), True)))
    return do("mul", do("sub", dy, engine.reduce("sum", do("mul", dy, y), (axis,), True)), y)
