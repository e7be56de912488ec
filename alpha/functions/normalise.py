"""Normalisation of each sample by its own statistics: layer, group and instance norm, one Function for all three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.norm import batch_norm
from alpha.functions.operands import call, check_float, compute, sum_to
from alpha.functions.shape import reshape
from alpha.tensor import Shape, Tensor

__all__ = ["group_norm", "instance_norm", "layer_norm"]

Axes = tuple[int, ...]


class Running(NamedTuple):
    """Running statistics (C,) of samples (N, ..., C), and the share of the newest batch in them."""

    mean: Tensor
    var: Tensor
    momentum: float


class Normalise(Function):
    """(x - mean) / sqrt(var + eps) * weight + bias; mean and biased variance over some axes, in two passes."""

    fresh = True

    def forward(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        axes: Axes,
        eps: float,
        running: Running | None = None,
    ) -> Tensor:
        self.axes, self.shapes = axes, [() if v is None else v.shape for v in (weight, bias)]
        mean = _mean(x, axes)
        normal = compute("sub", x, mean)
        var = _mean(compute("square", normal), axes)
        if running is not None:
            count = math.prod(x.shape[axis] for axis in axes)
            _blend(running.mean, mean, running.momentum, 1.0)
            _blend(running.var, var, running.momentum, count / (count - 1))
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


def _summed(grad: Tensor, shape: Shape) -> Tensor:
    """``sum_to`` as a tensor of its own."""
    total = sum_to(grad, shape)
    return total.clone() if total.storage is grad.storage else total


def _blend(running: Tensor, value: Tensor, momentum: float, factor: float) -> None:
    """Takes the mean over the samples of a statistic (N, 1, ..., C) into a running one (C,)."""
    total = value.engine.reduce("sum", value, tuple(range(value.ndim - 1)), False)
    compute("mul", total, momentum * factor / len(value), out=total)
    compute("add", compute("mul", running, 1 - momentum, out=running), total, out=running)
    running.storage.version += 1


def _mean(x: Tensor, axes: Axes) -> Tensor:
    """Means over axes, which keep length 1."""
    total = x.engine.reduce("sum", x, axes, True)
    return compute("div", total, math.prod(x.shape[axis] for axis in axes), out=total)


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
    if x.shape[-len(shape) :] != shape or 0 in shape:
        raise ShapeError(
            f"[layer_norm] expected x of shape (..., {', '.join(map(str, shape))}), got {x.shape}: its last axes are "
            "normalised"
        )
    return call(Normalise, x, weight, bias, tuple(range(x.ndim - len(shape), x.ndim)), eps)


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
    _check("group_norm", x, x.shape[-1:], weight=weight, bias=bias)
    if x.ndim < 2 or num_groups < 1 or x.shape[-1] % num_groups or 0 in x.shape[1:]:
        raise ShapeError(f"[group_norm] expected x (N, ..., C) with C in {num_groups} equal groups, got {x.shape}")
    if x.numel() == num_groups:
        raise ShapeError(f"[group_norm] expected more than one value a group, got x: {x.shape}: use fewer groups")
    split = (num_groups, x.shape[-1] // num_groups)
    factor, shift = (None if v is None else reshape(v, split) for v in (weight, bias))
    axes = (*range(1, x.ndim - 1), x.ndim)
    return reshape(call(Normalise, reshape(x, (*x.shape[:-1], *split)), factor, shift, axes, eps), x.shape)


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
    axes = tuple(range(1, x.ndim - 1))
    if math.prod(x.shape[axis] for axis in axes) < 2:
        raise ShapeError(
            f"[instance_norm] expected more than one value a channel and sample, got x: {x.shape}: use larger maps"
        )
    running = None
    if running_mean is not None and running_var is not None and len(x) > 0:
        running = Running(running_mean, running_var, momentum)
    return call(Normalise, x, weight, bias, axes, eps, running)


def _lengths(shape: int | Sequence[int]) -> Shape:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)


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
