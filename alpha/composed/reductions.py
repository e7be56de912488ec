"""Means and Euclidean norms over axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def mean(engine: Engine, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The sum, divided."""
    total = engine.reduce("sum", x, axes, keepdims)
    return engine.elementwise("div", total, math.prod(x.shape[axis] for axis in axes), out=total)


def euclidean_norm(engine: Engine, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The root of the sum of the squares."""
    total = engine.reduce("sum", engine.elementwise("square", x), axes, keepdims)
    return engine.elementwise("sqrt", total, out=total)
