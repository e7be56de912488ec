"""Products with a layer's weights: as convolutions of images of one pixel, which engines have anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha.geometry import Geometry
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.records import PointwiseStep

_PIXEL = Geometry.make((1, 1), (1, 1))


def linear(
    engine: Engine, x: Tensor, w: Tensor, bias: Tensor | None, step: PointwiseStep | None, keeps: bool
) -> tuple[Tensor, Tensor]:
    """The product, then the step: a pass over memory each."""
    out = _matrix(engine.conv2d(_pixels(x), _pixels(w), bias, _PIXEL, 1))
    if step is None:
        return out, out
    (result,) = engine.pointwise(step.function, step.program, (out,), step.numbers, None if keeps else out)
    return result, out


def linear_input_grad(engine: Engine, dy: Tensor, w: Tensor) -> Tensor:
    """dX = dY W."""
    return _matrix(engine.conv2d_input_grad(_pixels(dy), _pixels(w), _PIXEL, 1))


def linear_weight_grad(engine: Engine, x: Tensor, dy: Tensor, with_bias: bool) -> tuple[Tensor, Tensor | None]:
    """dW = dY^T X, and the bias's gradient, the sum of dY's rows."""
    dw = _matrix(engine.conv2d_weight_grad(_pixels(x), _pixels(dy), _PIXEL, 1))
    return dw, engine.channel_sum(dy) if with_bias else None


def _pixels(x: Tensor) -> Tensor:
    """(rows, channels) as images of one pixel, or as filters of one tap; a view."""
    rows, channels = x.shape
    return x.strided(x.offset, (rows, 1, 1, channels), (x.strides[0], x.strides[0], x.strides[0], x.strides[1]))


def _matrix(x: Tensor) -> Tensor:
    """Images of one pixel as (rows, channels); a view."""
    return x.strided(x.offset, (x.shape[0], x.shape[3]), (x.strides[0], x.strides[3]))
