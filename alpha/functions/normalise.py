"""Normalisation of each sample by its own statistics: layer, RMS, group and instance norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpha import dtypes
from alpha.arguments import Shape, flag, number, shape_of, whole
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.engine import RunningStatistics
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32, through_float32
from alpha.functions.images import of_images
from alpha.functions.mean_pooling import avg_pool2d
from alpha.functions.norm import batch_norm
from alpha.functions.nothing import nothing
from alpha.functions.operands import call, check_float, check_tensor
from alpha.functions.padding import pad
from alpha.functions.shape import permute, reshape
from alpha.launches import GROUP_NORM, ROW_NORM
from alpha.tensor import Tensor

__all__ = ["group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


# -- over the last axes ------------------------------------------------------------------------------------------


class RowNorm(Function):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes, or without the mean where it is not centered."""

    fresh = True

    def forward(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float, centered: bool
    ) -> Tensor:
        self.axes, self.eps, self.centered = axes, eps, centered
        y, statistics = x.engine.row_norm(x, weight, bias, axes, eps, centered)
        self.save(x, weight, *statistics)
        return y

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *statistics = self.saved
        needs = self.needs[:3]
        return dy.engine.row_norm_grad(dy, x, weight, tuple(statistics), self.axes, self.centered, needs)

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *_ = self.saved
        axes = tuple(range(-self.axes, 0))

        def formula(x: Tensor, weight: Tensor | None) -> Tensor:
            centered = x - x.mean(axes, True) if self.centered else x
            normal = centered * ((centered * centered).mean(axes, True) + self.eps).rsqrt()
            return normal if weight is None else normal * weight.reshape(x.shape[-self.axes :])

        dx, dw = by_formula(formula, (x, weight), dy)
        leading = tuple(range(dy.ndim - self.axes))
        db = None if not self.needs[2] else dy.sum(leading) if leading else dy
        return dx, dw, db


# -- over positions and a group of channels ----------------------------------------------------------------------


class GroupNorm(Function):
    """Normalisation over the positions and a group of channels of each sample of (N, ..., C)."""

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
        self.groups, self.eps = groups, eps
        y, kept = x.engine.group_norm(x, weight, bias, groups, eps, running)
        self.save(x, weight, *kept)
        return y

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        _, _, *kept = self.saved
        return dy.engine.group_norm_grad(dy, kept, self.groups, self.eps, self.needs[:3])

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *_ = self.saved

        def formula(x: Tensor, weight: Tensor | None) -> Tensor:
            grouped = x.reshape(len(x), -1, self.groups, x.shape[-1] // self.groups)
            centered = grouped - grouped.mean((1, 3), True)
            normal = (centered * ((centered * centered).mean((1, 3), True) + self.eps).rsqrt()).reshape(x.shape)
            return normal if weight is None else normal * weight

        dx, dw = by_formula(formula, (x, weight), dy)
        return dx, dw, dy.sum(tuple(range(dy.ndim - 1))) if self.needs[2] else None


# -- the functions -----------------------------------------------------------------------------------------------


@in_float32
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias over the last axes, each entry of the others by itself.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: the lengths of the axes that mean and biased variance are taken over; an int for the last.
        weight, bias: of this shape, or None for 1 and 0.

    Source: Ba et al., arXiv 1607.06450.
    """
    if type(normalized_shape) is tuple:  # an int would be a number of axes
        found = ROW_NORM.launch_outside(input, weight, bias, normalized_shape, eps, True)
        if found is not None:
            result: Tensor = found[0]
            return result
    shape = _checked_rows("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    eps = number("layer_norm", "eps", eps)
    if not input.numel():
        return nothing(input.shape, input, weight, bias)
    return _row_norm(input, weight, bias, shape, eps, True)


@in_float32
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(input ** 2) + eps) * weight over the last axes, each entry of the others by itself.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: the lengths of the axes that the mean is taken over; an int for the last.
        weight: of this shape, or None for 1.
        eps: None for the distance from 1 to the next number of x's dtype.

    Source: Zhang & Sennrich, arXiv 1910.07467.
    """
    if type(normalized_shape) is tuple:
        found = ROW_NORM.launch_outside(input, weight, None, normalized_shape, eps, False)
        if found is not None:
            result: Tensor = found[0]
            return result
    shape = _checked_rows("rms_norm", input, normalized_shape, weight=weight)
    eps = float(dtypes.finfo(input.dtype).eps) if eps is None else number("rms_norm", "eps", eps)
    if not input.numel():
        return nothing(input.shape, input, weight)
    return _row_norm(input, weight, None, shape, eps, False)


def _row_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float, centered: bool
) -> Tensor:
    """Layer or RMS norm over the last axes of a shape, which its launches get to know."""
    y = call(RowNorm, x, weight, bias, len(shape), eps, centered)
    if not y.requires_grad:
        given, followed = (x, weight, bias, shape, eps, centered), (x, weight, bias, len(shape), eps, centered)
        x.storage.engine.alias(ROW_NORM, followed, ROW_NORM, given)
    return y


@in_float32
@of_images("input")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias, each group of neighbouring channels of each sample by itself.

    Args:
        input: (N, ..., C), channels last.
        num_groups: a divisor of C.
        weight, bias: (C,), or None for 1 and 0.

    Source: Wu & He, arXiv 1803.08494.
    """
    found = GROUP_NORM.launch_outside(input, weight, bias, num_groups, eps)
    if found is not None:
        result: Tensor = found[0]
        return result
    check_tensor("group_norm", input)
    num_groups, eps = whole("group_norm", "num_groups", num_groups), number("group_norm", "eps", eps)
    _check("group_norm", input, input.shape[-1:], weight=weight, bias=bias)
    if input.ndim < 2 or num_groups < 1 or input.shape[-1] % num_groups:
        raise ShapeError(f"[group_norm] expected x (N, ..., C) with C in {num_groups} equal groups, got {input.shape}")
    if not input.numel():
        return nothing(input.shape, input, weight, bias)
    if input.numel() == num_groups:
        raise ShapeError(f"[group_norm] expected more than one value per group, got x: {input.shape}: use fewer groups")
    return call(GroupNorm, input, weight, bias, num_groups, eps)


@through_float32
@of_images("input")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str | None = None,
) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias, each channel of each sample by itself.

    Args:
        input: (N, ..., C), channels last, such as images (N, H, W, C).
        running_mean, running_var: (C,), both or neither; updated in place with the mean of the samples' means and
            unbiased variances, or used where ``use_input_stats`` is False.
        weight, bias: (C,), or None for 1 and 0.
        momentum: weight of the batch in the running statistics.

    Source: Ulyanov et al., arXiv 1607.08022.
    """
    check_tensor("instance_norm", input)
    momentum, eps = number("instance_norm", "momentum", momentum), number("instance_norm", "eps", eps)
    use_input_stats = flag("instance_norm", "use_input_stats", use_input_stats)
    _check(
        "instance_norm",
        input,
        input.shape[-1:],
        weight=weight,
        bias=bias,
        running_mean=running_mean,
        running_var=running_var,
    )
    if input.ndim < 3:
        raise ShapeError(f"[instance_norm] expected x with 3 axes or more, (N, ..., C), got {input.shape}")
    if (running_mean is None) != (running_var is None) or (running_mean is None and not use_input_stats):
        raise ArgumentError(
            "[instance_norm] expected running_mean and running_var, both or with use_input_stats=True neither, got "
            f"{'none' if running_mean is None and running_var is None else 'one'}: pass both"
        )
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, eps=eps, layout="NHWC")
    if math.prod(input.shape[1:-1]) == 1:
        raise ShapeError(
            f"[instance_norm] expected more than one value per channel and sample, got x: {input.shape}: "
            "use larger maps"
        )
    if not input.numel():
        return nothing(input.shape, input, weight, bias)
    running = None
    if running_mean is not None and running_var is not None:
        running = RunningStatistics(running_mean, running_var, momentum)
    return call(GroupNorm, input, weight, bias, input.shape[-1], eps, running)


@of_images("input")
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, layout: str | None = None
) -> Tensor:
    """x / (k + alpha * mean(x^2)) ^ beta, the mean over ``size`` channels around of (N, ..., C), with 0 beyond.

    Source: Krizhevsky et al., NIPS 2012.
    """
    name = "local_response_norm"
    check_float(name, input)
    size = whole(name, "size", size, 1)
    alpha, beta, k = number(name, "alpha", alpha), number(name, "beta", beta), number(name, "k", k)
    if input.ndim < 3:
        raise ShapeError(f"[{name}] expected x with 3 axes or more, (N, ..., C), got {input.shape}")
    if not input.numel():
        return nothing(input.shape, input)
    channels = input.shape[-1]
    columns = reshape(permute(reshape(input, (-1, channels)), (1, 0)), (1, channels, 1, -1))  # channels as rows
    padded = pad(columns, (0, 0, 0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(padded * padded, (size, 1), 1, layout="NHWC")
    means = reshape(permute(reshape(means, (channels, -1)), (1, 0)), input.shape)
    return _responding(input, means, alpha, beta, k)


@pointwise
def _responding(x, means, alpha, beta, k):  # type: ignore[no-untyped-def]
    return x / (k + alpha * means) ** beta


def _checked_rows(function: str, x: Tensor, normalized_shape: int | Sequence[int], **parts: Tensor | None) -> Shape:
    """The shape of the last axes of x; an error unless it has them, and the parts go with them."""
    given = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    shape = shape_of(function, given)
    _check(function, x, shape, **parts)
    if not shape:
        raise ShapeError(f"[{function}] expected normalized_shape with at least one length, got none")
    if x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"[{function}] expected x of shape (..., {', '.join(map(str, shape))}), got {x.shape}: its last axes are "
            "normalised"
        )
    return shape


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
