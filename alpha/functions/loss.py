"""Losses of one element and its target: squared, absolute and smoothed errors, margins."""

from __future__ import annotations

from typing import Any

from alpha import dtypes
from alpha.arguments import number
from alpha.errors import ArgumentError, ShapeError
from alpha.expressions.functions import pointwise
from alpha.functions import elementwise
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import where
from alpha.functions.likelihood import softplus
from alpha.functions.loss_arguments import of_one_shape, reduced, reduction_of, together
from alpha.functions.reduction import mean, sum
from alpha.tensor import Tensor

__all__ = [
    "hinge_embedding_loss",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
]


# -- differences -------------------------------------------------------------------------------------------------


@pointwise
def _squared_error(x, target):  # type: ignore[no-untyped-def]
    difference = x - target
    return difference * difference


@pointwise
def _absolute_error(x, target):  # type: ignore[no-untyped-def]
    return abs(x - target)


@pointwise
def _smooth_error(x, target, beta):  # type: ignore[no-untyped-def]
    size = abs(x - target)
    return where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)


@_smooth_error.gradient
def _(grad, x, target, beta):  # type: ignore[no-untyped-def]
    slope = grad * elementwise.clamp((x - target) / beta, -1.0, 1.0)
    return slope, -slope, None


@pointwise
def _huber_error(x, target, delta):  # type: ignore[no-untyped-def]
    size = abs(x - target)
    return where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


@_huber_error.gradient
def _(grad, x, target, delta):  # type: ignore[no-untyped-def]
    slope = grad * elementwise.clamp(x - target, -delta, delta)
    return slope, -slope, None


@pointwise
def _weighted_squared_error(x, target, weight):  # type: ignore[no-untyped-def]
    return _squared_error(x, target) * weight


@pointwise
def _weighted_absolute_error(x, target, weight):  # type: ignore[no-untyped-def]
    return _absolute_error(x, target) * weight


@pointwise
def _weighted_huber_error(x, target, weight, delta):  # type: ignore[no-untyped-def]
    return _huber_error(x, target, delta) * weight


@in_float32
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2, over all elements "mean", "sum" or "none"; with a ``weight`` of their shape a weighted mean.

    Tensors of different shapes are broadcast with a warning.
    """
    reduction = reduction_of("mse_loss", reduction, size_average, reduce)
    input, target = together("mse_loss", True, input=input, target=target)
    if weight is None:
        return reduced(_squared_error, reduction, input, target)
    return _weighted("mse_loss", _weighted_squared_error, reduction, input, target, weight)


@in_float32
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|; arguments as ``mse_loss``'s. The gradient is 0 at 0."""
    reduction = reduction_of("l1_loss", reduction, size_average, reduce)
    if weight is None and any(isinstance(x, Tensor) and dtypes.is_complex(x.dtype) for x in (input, target)):
        distance = elementwise.abs(elementwise.sub(input, target))
        return distance if reduction == "none" else mean(distance) if reduction == "mean" else sum(distance)
    input, target = together("l1_loss", True, input=input, target=target)
    if weight is None:
        return reduced(_absolute_error, reduction, input, target)
    return _weighted("l1_loss", _weighted_absolute_error, reduction, input, target, weight)


@in_float32
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, elsewhere d - beta / 2; with beta 0 the ``l1_loss``."""
    reduction = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    input, target = together("smooth_l1_loss", True, input=input, target=target)
    beta = number("smooth_l1_loss", "beta", beta)
    if not beta >= 0:
        raise ArgumentError(f"[smooth_l1_loss] expected beta >= 0, got {beta}")
    if beta == 0:
        return reduced(_absolute_error, reduction, input, target)
    return reduced(_smooth_error, reduction, input, target, beta)


@in_float32
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """d^2 / 2 where d = |input - target| <= delta, elsewhere delta * (d - delta / 2), times a ``weight`` if given."""
    reduction = reduction_of("huber_loss", reduction)
    input, target = together("huber_loss", True, input=input, target=target)
    delta = number("huber_loss", "delta", delta)
    if not delta > 0:
        raise ArgumentError(f"[huber_loss] expected delta > 0, got {delta}")
    if weight is None:
        return reduced(_huber_error, reduction, input, target, delta)
    _check_same("huber_loss", input, weight)
    return reduced(_weighted_huber_error, reduction, input, target, weight, delta)


def _weighted(function: str, loss: Any, reduction: str, input: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Weighted errors; their mean is over the sum of the weights."""
    _check_same(function, input, weight)
    if reduction == "mean":
        total: Tensor = loss.sum(input, target, weight) / sum(weight)
        return total
    return reduced(loss, reduction, input, target, weight)


def _check_same(function: str, input: Tensor, weight: Tensor) -> None:
    together(function, False, input=input, weight=weight)
    if weight.shape != input.shape:
        raise ShapeError(f"[{function}] expected a weight of the input's shape {input.shape}, got {weight.shape}")


# -- margins --------------------------------------------------------------------------------------------------------


@pointwise
def _soft_margin(x, y):  # type: ignore[no-untyped-def]
    return softplus(-y * x)


@pointwise
def _hinge(x, target, margin):  # type: ignore[no-untyped-def]
    return where(target == 1, 0.0, elementwise.clamp(margin - x, 0.0)) + where(target == -1, 0.0, x)


@in_float32
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-y x)) of numbers x and targets y of 1 or -1."""
    reduction = reduction_of("soft_margin_loss", reduction, size_average, reduce)
    return reduced(_soft_margin, reduction, *of_one_shape("soft_margin_loss", input, target))


@in_float32
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    name = "hinge_embedding_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    given = together(name, False, input=input, target=target)
    return reduced(_hinge, reduction, *given, number(name, "margin", margin))
