"""Group norm on BatchNorm's operations, for which each channel of each sample is a channel.

They see the columns of (positions, N * C). Where a group is one channel that is all; else the columns' statistics make
the groups', and so do their gradients: dx = (dn - mean(dn) - normal * mean(dn * normal)) / std, with dn = dy * weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alpha.composed.arrays import cast, filled
from alpha.records import BatchNormState, Epilogue, RunningStatistics
from alpha.tensor import Tensor, dense_strides

if TYPE_CHECKING:
    from alpha.arguments import Shape
    from alpha.engine import Engine


def group_norm(
    engine: Engine,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    groups: int,
    eps: float,
    running: RunningStatistics | None,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The result, and what ``group_norm_grad`` takes."""
    do, split = engine.elementwise, (len(x), groups, x.shape[-1] // groups)
    columns = _columns(x)
    factor, shift = [None if v is None else _repeated(v, (len(x), x.shape[-1])) for v in (weight, bias)]
    mean, var = [filled(engine, columns.shape[1:], 0, x.dtype) for _ in range(2)]
    epilogue = Epilogue(factor, shift)
    y, state = engine.batch_norm(columns, RunningStatistics(mean, var, 1.0), eps, epilogue, None)
    if running is not None:
        blend(running, mean, var)
    if split[2] > 1:
        biased = do("mul", var, 1 - 1 / len(columns))
        shared = _shared(mean, split)
        var = _shared(do("add", biased, do("square", do("sub", mean, shared))), split)
        y, state = engine.batch_norm_inference(columns, shared, var, eps, epilogue, None)
    return _samples(y, x.shape), (columns, factor, shift, var, state.mean, state.inverse_std)


def group_norm_grad(
    engine: Engine, dy: Tensor, kept: Sequence[Any], groups: int, eps: float, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients (dx, dweight, dbias)."""
    do, shape = engine.elementwise, dy.shape
    split = (len(dy), groups, shape[-1] // groups)
    columns, factor, shift, var, mean, inverse_std = kept
    alone = split[2] == 1
    dx, dfactor, dshift, _ = engine.batch_norm_grad(
        _columns(dy), columns, None, Epilogue(factor, shift), BatchNormState(mean, inverse_std, alone), False
    )
    if not alone and needs[0]:
        # An engine may keep statistics in a wider dtype than its operations beside x take.
        mean, inverse_std = cast(engine, mean, dy.dtype), cast(engine, inverse_std, dy.dtype)
        scale = do("mul", inverse_std, -1 / len(columns))
        slope, offset = [
            do("mul", _shared(part if factor is None else do("mul", part, factor), split), scale)
            for part in (dfactor, dshift)
        ]
        dx, _ = engine.batch_norm_inference(columns, mean, var, eps, Epilogue(slope, offset), dx)
    dweight, dbias = [
        engine.reduce("sum", part.strided(part.offset, (len(dy), shape[-1]), (shape[-1], 1)), (0,), False)
        for part in (dfactor, dshift)
    ]
    return _samples(dx, shape), dweight, dbias


def blend(running: RunningStatistics, mean: Tensor, var: Tensor) -> None:
    """Takes the means over the samples of the columns' statistics into the running ones."""
    do = mean.engine.elementwise
    for running_value, new in ((running.mean, mean), (running.var, var)):
        if running_value is None:
            continue
        channels = running_value.shape[0]
        samples = new.numel() // channels
        total = new.engine.reduce("sum", new.strided(new.offset, (samples, channels), (channels, 1)), (0,), False)
        do("mul", total, running.momentum / samples, out=total)
        do("add", do("mul", running_value, 1 - running.momentum, out=running_value), total, out=running_value)
        running_value.storage.touch()


def _shared(x: Tensor, split: Shape) -> Tensor:
    """The mean of each group's columns, in all of them."""
    parts = x.strided(x.offset, split, (split[1] * split[2], split[2], 1))
    return _repeated(x.engine.mean(parts, (2,), True), split)


def _columns(x: Tensor) -> Tensor:
    """(N, ..., C) as (positions, N * C); a view of what lies in image order."""
    order = (*range(1, x.ndim - 1), 0, x.ndim - 1)
    x, width = x.contiguous(order), len(x) * x.shape[-1]
    return x.strided(x.offset, (x.numel() // width, width), (width, 1))


def _samples(columns: Tensor, shape: Shape) -> Tensor:
    """The reverse of ``_columns``."""
    return columns.strided(columns.offset, shape, dense_strides(shape, (*range(1, len(shape) - 1), 0, len(shape) - 1)))


def _repeated(x: Tensor, shape: Shape) -> Tensor:
    """A tensor broadcast to a shape and copied, as one axis."""
    out = x.engine.empty((math.prod(shape),), x.dtype)
    x.engine.copy(x, out.strided(0, shape, dense_strides(shape)))
    return out
