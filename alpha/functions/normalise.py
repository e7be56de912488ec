"""Normalisation of each sample by its own statistics: layer, group and instance norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpha.arguments import Shape, flag, number, shape_of, whole
from alpha.autograd import Function
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.elementwise import cast
from alpha.functions.norm import batch_norm
from alpha.functions.nothing import nothing
from alpha.functions.operands import call, check_float, check_tensor, compute, filled, sum_to
from alpha.tensor import Tensor, dense_strides

__all__ = ["group_norm", "instance_norm", "layer_norm"]

Axes = tuple[int, ...]


# -- over the last axes ------------------------------------------------------------------------------------------


class LayerNorm(Function):
    """(x - mean) / sqrt(var + eps) * weight + bias; mean and biased variance over some axes, in two passes."""

    fresh = True

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: Axes, eps: float) -> Tensor:
        self.axes, self.shapes = axes, [() if v is None else v.shape for v in (weight, bias)]
        normal = compute("sub", x, _mean(x, axes))
        var = _mean(compute("square", normal), axes)
        inverse_std = compute("reciprocal", compute("sqrt", compute("add", var, eps)))
        compute("mul", normal, inverse_std, out=normal)
        self.save(normal, inverse_std, weight)
        y = normal if weight is None else compute("mul", normal, weight)
        # Without a weight y is what backward needs.
        return y if bias is None else compute("add", y, bias, out=None if weight is None else y)

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        """dx = (dn - mean(dn) - normal * mean(dn * normal)) / std, with dn = dy * weight."""
        normal, inverse_std, weight = self.saved
        dx = dweight = None
        product = compute("mul", dy, normal)
        if self.needs[1]:
            dweight = _summed(product, self.shapes[0])
        if self.needs[0]:
            if weight is not None:
                compute("mul", product, weight, out=product)
            share = _mean(product, self.axes)
            dx = dy if weight is None else compute("mul", dy, weight)
            dx = compute("sub", dx, _mean(dx, self.axes), out=None if weight is None else dx)
            compute("sub", dx, compute("mul", normal, share, out=product), out=dx)
            compute("mul", dx, inverse_std, out=dx)
        return dx, dweight, _summed(dy, self.shapes[1]) if self.needs[2] else None


def _mean(x: Tensor, axes: Axes) -> Tensor:
    """Means over axes, which keep length 1."""
    total = x.engine.reduce("sum", x, axes, True)
    return compute("div", total, math.prod(x.shape[axis] for axis in axes), out=total)


def _summed(grad: Tensor, shape: Shape) -> Tensor:
    """``sum_to`` as a tensor of its own."""
    if len(shape) == 1 and grad.ndim > 1:
        return grad.engine.channel_sum(grad)
    total = sum_to(grad, shape)
    return total.clone() if total.storage is grad.storage else total


# -- over positions and a group of channels ----------------------------------------------------------------------


class GroupNorm(Function):
    """The same over the positions and a group of channels of each sample of (N, ..., C).

    It runs on BatchNorm's kernels, for which each channel of each sample is a channel: the columns of (positions,
    N * C). Where a group is one channel that is all; else the columns' statistics make the groups', and so do their
    gradients: dx = (dn - mean(dn) - normal * mean(dn * normal)) / std, with dn = dy * weight.
    """

    fresh = True

    def forward(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        eps: float,
        running: RunningStatistics | None = None,
    ) -> Tensor:
        engine, self.eps, self.shape = x.engine, eps, x.shape
        self.groups = (len(x), groups, x.shape[-1] // groups)
        columns = _columns(x)
        factor, shift = [None if v is None else _repeated(v, (len(x), x.shape[-1])) for v in (weight, bias)]
        mean, var = [filled(columns.view(0, columns.shape[1:], (1,)), 0) for _ in range(2)]
        epilogue = Epilogue(factor, shift)
        y, state = engine.batch_norm(columns, RunningStatistics(mean, var, 1.0), eps, epilogue, None)
        if running is not None:
            _blend(running, mean, var)
        if self.groups[2] > 1:
            biased = compute("mul", var, 1 - 1 / len(columns))
            shared = self._shared(mean)
            var = self._shared(compute("add", biased, compute("square", compute("sub", mean, shared))))
            y, state = engine.batch_norm_inference(columns, shared, var, eps, epilogue, None)
        self.save(columns, factor, shift, var, state.mean, state.inverse_std)
        return _samples(y, self.shape)

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        columns, factor, shift, var, mean, inverse_std = self.saved
        alone = self.groups[2] == 1
        dx, dfactor, dshift, _ = dy.engine.batch_norm_grad(
            _columns(dy), columns, None, Epilogue(factor, shift), BatchNormState(mean, inverse_std, alone), False
        )
        if not alone and self.needs[0]:
            # An engine may keep statistics in a wider dtype than its operations beside x take.
            mean, inverse_std = cast(mean, dy.dtype), cast(inverse_std, dy.dtype)
            scale = compute("mul", inverse_std, -1 / len(columns))
            slope, offset = [
                compute("mul", self._shared(part if factor is None else compute("mul", part, factor)), scale)
                for part in (dfactor, dshift)
            ]
            dx, _ = dy.engine.batch_norm_inference(columns, mean, var, self.eps, Epilogue(slope, offset), dx)
        dweight, dbias = [
            dy.engine.reduce("sum", part.view(part.offset, (len(dy), dy.shape[-1]), (dy.shape[-1], 1)), (0,), False)
            for part in (dfactor, dshift)
        ]
        return _samples(dx, self.shape), dweight, dbias

    def _shared(self, x: Tensor) -> Tensor:
        """The mean of each group's columns, in all of them."""
        split = x.view(x.offset, self.groups, (self.shape[-1], self.groups[2], 1))
        return _repeated(_mean(split, (2,)), self.groups)


def _columns(x: Tensor) -> Tensor:
    """(N, ..., C) as (positions, N * C); a view of what lies in image order."""
    order = (*range(1, x.ndim - 1), 0, x.ndim - 1)
    x, width = x.contiguous(order), len(x) * x.shape[-1]
    return x.view(x.offset, (x.numel() // width, width), (width, 1))


def _samples(columns: Tensor, shape: Shape) -> Tensor:
    """The reverse of ``_columns``."""
    return columns.view(columns.offset, shape, dense_strides(shape, (*range(1, len(shape) - 1), 0, len(shape) - 1)))


def _repeated(x: Tensor, shape: Shape) -> Tensor:
    """A tensor broadcast to a shape and copied, as one axis."""
    out = x.engine.empty((math.prod(shape),), x.dtype)
    x.engine.copy(x, out.view(0, shape, dense_strides(shape)))
    return out


def _blend(running: RunningStatistics, mean: Tensor, var: Tensor) -> None:
    """Takes the means over the samples of the columns' statistics into the running ones."""
    for running_value, new in ((running.mean, mean), (running.var, var)):
        if running_value is None:
            continue
        channels = running_value.shape[0]
        samples = new.numel() // channels
        total = new.engine.reduce("sum", new.view(new.offset, (samples, channels), (channels, 1)), (0,), False)
        compute("mul", total, running.momentum / samples, out=total)
        compute("add", compute("mul", running_value, 1 - running.momentum, out=running_value), total, out=running_value)
        running_value.storage.touch()


# -- the functions -----------------------------------------------------------------------------------------------


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, each entry of the others by itself.

    Args:
        x: (..., *normalized_shape).
        normalized_shape: the lengths of the axes that mean and biased variance are taken over; an int for the last.
        weight, bias: of this shape, or None for 1 and 0.

    Source: Ba et al., arXiv 1607.06450.
    """
    shape = _lengths(normalized_shape)
    _check("layer_norm", x, shape, weight=weight, bias=bias)
    if not shape:
        raise ShapeError("[layer_norm] expected normalized_shape with at least one length, got none")
    if x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"[layer_norm] expected x of shape (..., {', '.join(map(str, shape))}), got {x.shape}: its last axes are "
            "normalised"
        )
    eps = number("layer_norm", "eps", eps)
    if not x.numel():
        return nothing(x.shape, x, weight, bias)
    return call(LayerNorm, x, weight, bias, tuple(range(x.ndim - len(shape), x.ndim)), eps)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, each group of neighbouring channels of each sample by itself.

    Args:
        x: (N, ..., C), channels last.
        num_groups: a divisor of C.
        weight, bias: (C,), or None for 1 and 0.

    Source: Wu & He, arXiv 1803.08494.
    """
    check_tensor("group_norm", x)
    num_groups, eps = whole("group_norm", "num_groups", num_groups), number("group_norm", "eps", eps)
    _check("group_norm", x, x.shape[-1:], weight=weight, bias=bias)
    if x.ndim < 2 or num_groups < 1 or x.shape[-1] % num_groups:
        raise ShapeError(f"[group_norm] expected x (N, ..., C) with C in {num_groups} equal groups, got {x.shape}")
    if not x.numel():
        return nothing(x.shape, x, weight, bias)
    if x.numel() == num_groups:
        raise ShapeError(f"[group_norm] expected more than one value per group, got x: {x.shape}: use fewer groups")
    return call(GroupNorm, x, weight, bias, num_groups, eps)


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, each channel of each sample by itself.

    Args:
        x: (N, ..., C), channels last, such as images (N, H, W, C).
        running_mean, running_var: (C,), both or neither; updated in place with the mean of the samples' means and
            unbiased variances, or used where ``use_input_stats`` is False.
        weight, bias: (C,), or None for 1 and 0.
        momentum: weight of the batch in the running statistics.

    Source: Ulyanov et al., arXiv 1607.08022.
    """
    check_tensor("instance_norm", x)
    momentum, eps = number("instance_norm", "momentum", momentum), number("instance_norm", "eps", eps)
    use_input_stats = flag("instance_norm", "use_input_stats", use_input_stats)
    _check(
        "instance_norm", x, x.shape[-1:], weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    if x.ndim < 3:
        raise ShapeError(f"[instance_norm] expected x with 3 axes or more, (N, ..., C), got {x.shape}")
    if (running_mean is None) != (running_var is None) or (running_mean is None and not use_input_stats):
        raise ArgumentError(
            "[instance_norm] expected running_mean and running_var, both or with use_input_stats=True neither, got "
            f"{'none' if running_mean is None and running_var is None else 'one'}: pass both"
        )
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    if math.prod(x.shape[1:-1]) == 1:
        raise ShapeError(
            f"[instance_norm] expected more than one value per channel and sample, got x: {x.shape}: use larger maps"
        )
    if not x.numel():
        return nothing(x.shape, x, weight, bias)
    running = None
    if running_mean is not None and running_var is not None:
        running = RunningStatistics(running_mean, running_var, momentum)
    return call(GroupNorm, x, weight, bias, x.shape[-1], eps, running)


def _lengths(shape: int | Sequence[int]) -> Shape:
    return shape_of("layer_norm", shape if isinstance(shape, tuple | list) else (shape,))


def _check(function: str, x: Tensor, shape: Shape, **parts: Tensor | None) -> None:
    """DtypeError, EngineError or ShapeError unless the parts that are given go with x and have this shape."""
    given = {name: part for name, part in parts.items() if part is not None}
    check_float(function, x, *given.values())
    x.engine.check_owner(function, *given.values())
    for name, part in given.items():
        if part.shape != shape:
            raise ShapeError(f"[{function}] expected {name} of shape {shape} for x: {x.shape}, got {part.shape}")
        if part.dtype != x.dtype:
            raise DtypeError(f"[{function}] expected {name} of {x.dtype} as x, got {part.dtype}: cast one")
