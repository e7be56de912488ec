"""BatchNorm with its fused activation and residual, its gradient, and LeakyReLU; sums are taken in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from alpha.changes import Rewriting
from alpha.composed.arrays import cast, copied
from alpha.dtypes import float64
from alpha.expressions import rectifiers
from alpha.records import BatchNormState, Epilogue, RunningStatistics

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def channel_sum(engine: Engine, x: Tensor) -> Tensor:
    """The sum over all axes but the last."""
    return cast(engine, _sums(engine, cast(engine, x, float64)), x.dtype)


def batch_norm(
    engine: Engine, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
) -> tuple[Tensor, BatchNormState]:
    """Mean and variance in two passes; the running statistics and the count are written all or none."""
    do, count, wide = engine.elementwise, _count(x), cast(engine, x, float64)
    running_mean, running_var, momentum, batches = running
    mean = do("div", _sums(engine, wide), count)
    var = do("div", _sums(engine, do("square", do("sub", wide, mean))), count)
    unbiased = do("mul", var, count / max(count - 1, 1))

    def blended(kept: Tensor, value: Tensor) -> Tensor:
        return do("add", do("mul", cast(engine, kept, float64), 1 - momentum), do("mul", value, momentum))

    pairs = ((running_mean, mean), (running_var, unbiased))
    given = [(kept, value) for kept, value in pairs if kept is not None]
    rewritten: list[tuple[Tensor, Callable[[], Tensor]]] = [(kept, partial(blended, kept, new)) for kept, new in given]
    if batches is not None:
        rewritten.append((batches, partial(do, "add", batches, 1)))
    Rewriting(rewritten).make()
    y, state = batch_norm_inference(engine, x, mean, var, eps, epilogue, residual)
    return y, state._replace(training=True)


def batch_norm_inference(
    engine: Engine, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
) -> tuple[Tensor, BatchNormState]:
    """The state has copies of the statistics: the given ones may change before backward."""
    do = engine.elementwise
    inverse_std = do("reciprocal", do("sqrt", do("add", cast(engine, var, float64), eps)))
    state = BatchNormState(copied(engine, mean, float64), inverse_std, False)
    y = _affine(engine, x, epilogue, state)
    y = y if residual is None else do("add", y, residual)
    return (y if epilogue.slope is None else engine.leaky_relu(y, epilogue.slope)), state


def batch_norm_grad(
    engine: Engine,
    dy: Tensor,
    x: Tensor,
    y: Tensor | None,
    epilogue: Epilogue,
    state: BatchNormState,
    need_residual: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dx = weight * inverse_std * (g - mean(g) - n * mean(g * n)), n the normalised x and g the masked dy."""
    do, weight, slope = engine.elementwise, epilogue.weight, epilogue.slope
    if slope is not None:
        dy = engine.leaky_relu_grad(dy, _affine(engine, x, epilogue, state) if y is None else y, slope)
    g, normal, count = cast(engine, dy, float64), _normalised(engine, x, state), _count(x)
    dbias, dweight = _sums(engine, g), _sums(engine, do("mul", g, normal))
    dx = g
    if state.training:
        dx = do("sub", do("sub", g, do("div", dbias, count)), do("mul", normal, do("div", dweight, count)))
    dx = do("mul", dx, cast(engine, state.inverse_std, float64))
    dx = dx if weight is None else do("mul", dx, cast(engine, weight, float64))
    dx, dweight, dbias = (cast(engine, gradient, x.dtype) for gradient in (dx, dweight, dbias))
    return dx, dweight, dbias, engine.dense(dy) if need_residual else None


def leaky_relu(engine: Engine, x: Tensor, slope: float) -> Tensor:
    """LeakyReLU. With a slope of 0 nothing is multiplied: -inf * 0 would be NaN. A zero keeps its sign."""
    program, numbers = rectifiers.forward(slope)
    return engine.pointwise("leaky_relu", program, (x,), numbers)[0]


def leaky_relu_grad(engine: Engine, dy: Tensor, y: Tensor, slope: float) -> Tensor:
    """LeakyReLU's gradient. With a slope of 0 nothing is multiplied, as in ``leaky_relu``."""
    program, numbers = rectifiers.gradient(slope)
    return engine.pointwise("leaky_relu", program, (y, dy), numbers)[0]


def _count(x: Tensor) -> int:
    """Elements of a channel."""
    return x.numel() // max(x.shape[-1], 1)


def _sums(engine: Engine, x: Tensor) -> Tensor:
    """The sum of each channel."""
    return engine.reduce("sum", x, tuple(range(x.ndim - 1)), False)


def _normalised(engine: Engine, x: Tensor, state: BatchNormState) -> Tensor:
    """(x - mean) / std, in float64."""
    mean, inverse_std = (cast(engine, value, float64) for value in (state.mean, state.inverse_std))
    return engine.elementwise("mul", engine.elementwise("sub", cast(engine, x, float64), mean), inverse_std)


def _affine(engine: Engine, x: Tensor, epilogue: Epilogue, state: BatchNormState) -> Tensor:
    """BatchNorm without activation and residual, computed in float64 and rounded to the dtype of x."""
    y, (weight, bias, _) = _normalised(engine, x, state), epilogue
    y = y if weight is None else engine.elementwise("mul", y, cast(engine, weight, float64))
    y = y if bias is None else engine.elementwise("add", y, cast(engine, bias, float64))
    return cast(engine, y, x.dtype)
