"""Losses that are likelihoods: binary cross entropy, divergences, Poisson's and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from alpha.arguments import flag, number
from alpha.errors import ArgumentError, ShapeError
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import exp, log, log1p, maximum, where
from alpha.functions.loss_arguments import check_weight, of_one_shape, reduced, reduction_of, together
from alpha.functions.shape import unsqueeze
from alpha.records import RangeCheck
from alpha.tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "gaussian_nll_loss",
    "kl_div",
    "poisson_nll_loss",
]


# -- binary cross entropy ----------------------------------------------------------------------------------------


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    is_below = x < 0  # not by |x| and the maximum, whose slopes at 0 make second gradients wrong
    return log1p(exp(where(is_below, x, -x))) + where(is_below, 0.0, x)


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)): 0 where exp(-x) overflows, as in PyTorch, so that an infinite gradient gives NaN there."""
    return 1 / (1 + exp(-x))


@pointwise
def _binary_cross_entropy(x, y):  # type: ignore[no-untyped-def]
    """(1 - y) x + softplus(-x): finite for every finite x."""
    return (1 - y) * x + softplus(-x)


@_binary_cross_entropy.gradient
def _(grad, x, y):  # type: ignore[no-untyped-def]
    return grad * (_sigmoid(x) - y), grad * -x


@pointwise
def _weighted_binary_cross_entropy(x, y, weight, positive):  # type: ignore[no-untyped-def]
    """(1 - y) x + (1 + (p - 1) y) softplus(-x), with p the positive class's weight, times the element's weight."""
    return weight * ((1 - y) * x + (1 + (positive - 1) * y) * softplus(-x))


@_weighted_binary_cross_entropy.gradient
def _(grad, x, y, weight, positive):  # type: ignore[no-untyped-def]
    grad, wanted = grad * weight, positive * y
    dx = grad * ((wanted + 1 - y) * _sigmoid(x) - wanted)
    return dx, grad * (positive * softplus(-x) - softplus(x)), None, None


@pointwise
def _binary_log_likelihood(x, y, weight):  # type: ignore[no-untyped-def]
    """-(y log(x) + (1 - y) log(1 - x)), no logarithm below -100."""
    return weight * ((y - 1) * maximum(log1p(-x), -100.0) - y * maximum(log(x), -100.0))


@_binary_log_likelihood.gradient
def _(grad, x, y, weight):  # type: ignore[no-untyped-def]
    grad = grad * weight
    return grad * (x - y) / maximum((1 - x) * x, 1e-12), grad * (log1p(-x) - log(x)), None


@pointwise
def _is_no_probability(x):  # type: ignore[no-untyped-def]
    return where(x >= 0, where(x <= 1, 0.0, 1.0), 1.0)


@in_float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-w (p y log s(x) + (1 - y) log(1 - s(x))) with s the sigmoid: x and target y (0..1) of one shape.

    ``weight`` w and ``pos_weight`` p broadcast to x and take no gradient. Computed without overflow for any finite x.
    """
    name = "binary_cross_entropy_with_logits"
    reduction = reduction_of(name, reduction, size_average, reduce)
    input, target = of_one_shape(name, input, target)
    if weight is None and pos_weight is None:
        return reduced(_binary_cross_entropy, reduction, input, target)
    factors = [
        1.0 if factor is None else check_weight(name, which, input, factor)
        for which, factor in (("weight", weight), ("pos_weight", pos_weight))
    ]
    return reduced(_weighted_binary_cross_entropy, reduction, input, target, *factors)


@in_float32
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-w (y log x + (1 - y) log(1 - x)) of probabilities x and targets y (0..1) of one shape; no logarithm below -100.

    ``weight`` w broadcasts to x and takes no gradient. ArgumentError for an x outside 0..1.
    """
    name = "binary_cross_entropy"
    reduction = reduction_of(name, reduction, size_average, reduce)
    input, target = of_one_shape(name, input, target)
    if input.engine.checking:
        message = f"[{name}] expected probabilities in 0..1, got others: apply a sigmoid, or use {name}_with_logits"
        input.engine.check_none(_is_no_probability.sum(input.detach()), RangeCheck(ArgumentError, message))
    factor = 1.0 if weight is None else check_weight(name, "weight", input, weight)
    return reduced(_binary_log_likelihood, reduction, input, target, factor)


# -- divergences, and other distributions ---------------------------------------------------------------------------


@pointwise
def _divergence(x, y):  # type: ignore[no-untyped-def]
    """y (log y - x), 0 where y is 0."""
    return where(y == 0, 0.0, y * log(where(y == 0, 1.0, y))) - y * x


@_divergence.gradient
def _(grad, x, y):  # type: ignore[no-untyped-def]
    return -grad * y, grad * (where(y == 0, 0.0, log(where(y == 0, 1.0, y)) + 1) - x)


@pointwise
def _log_divergence(x, y):  # type: ignore[no-untyped-def]
    return exp(y) * (y - x)


@pointwise
def _poisson(x, target, eps):  # type: ignore[no-untyped-def]
    return x - target * log(x + eps)


@pointwise
def _log_poisson(x, target):  # type: ignore[no-untyped-def]
    return exp(x) - target * x


@pointwise
def _stirling(target):  # type: ignore[no-untyped-def]
    """log(target!) by Stirling's formula, 0 for targets up to 1."""
    safe = where(target > 1, target, 1.0)
    return where(target > 1, safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe), 0.0)


@pointwise
def _full_poisson(x, target, eps):  # type: ignore[no-untyped-def]
    return _poisson(x, target, eps) + _stirling(target)


@pointwise
def _full_log_poisson(x, target):  # type: ignore[no-untyped-def]
    return _log_poisson(x, target) + _stirling(target)


@pointwise
def _gaussian(x, target, variance, eps, constant):  # type: ignore[no-untyped-def]
    safe = maximum(variance, eps)
    return 0.5 * (log(safe) + (x - target) * (x - target) / safe) + constant


@_gaussian.gradient
def _(grad, x, target, variance, eps, constant):  # type: ignore[no-untyped-def]
    """The variance's slope is the one at eps where it is smaller, so that it may grow again."""
    safe = maximum(variance, eps)
    scaled = (x - target) / safe
    slope = grad * scaled
    return slope, -slope, 0.5 * grad * (1 / safe - scaled * scaled), None, None


@pointwise
def _is_negative(x):  # type: ignore[no-untyped-def]
    return where(x < 0, 1.0, 0.0)


@in_float32
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence y (log y - x) of log-probabilities x from probabilities y (or their logarithms).

    ``reduction``: "batchmean", the sum over the length of the first axis, is the divergence's mean over a batch.
    """
    options = ("mean", "batchmean", "sum", "none")
    reduction = reduction_of("kl_div", reduction, size_average, reduce, options)
    input, target = together("kl_div", False, input=input, target=target)
    loss = _log_divergence if flag("kl_div", "log_target", log_target) else _divergence
    if reduction != "batchmean":
        return reduced(loss, reduction, input, target)
    total = loss.sum(input, target)
    return total / input.shape[0] if input.shape else total


@in_float32
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-log of the probability of a count under a Poisson distribution of mean exp(x), or x without ``log_input``.

    exp(x) - y x, or x - y log(x + eps); ``full`` adds Stirling's formula for log(y!).
    """
    name = "poisson_nll_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    input, target = together(name, False, input=input, target=target)
    full = flag(name, "full", full)
    if flag(name, "log_input", log_input):
        return reduced(_full_log_poisson if full else _log_poisson, reduction, input, target)
    return reduced(_full_poisson if full else _poisson, reduction, input, target, number(name, "eps", eps))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """-log of the density at the target of a normal distribution of mean x and a variance, which counts at least eps.

    (log var + (x - y)^2 / var) / 2; ``full`` adds log(2 pi) / 2. ``var``: a number, or shaped as x, or without its last
    axis or with one axis of length 1.
    """
    name = "gaussian_nll_loss"
    reduction = reduction_of(name, reduction)
    eps = number(name, "eps", eps)
    if not eps > 0:
        raise ArgumentError(f"[{name}] expected eps > 0, got {eps}")
    constant = 0.5 * math.log(2 * math.pi) if flag(name, "full", full) else 0.0
    message = f"[{name}] expected a variance >= 0, got a negative one"
    input, target = together(name, False, input=input, target=target)
    if isinstance(var, Tensor):
        _, var = together(name, False, input=input, var=_spread(name, input, var))
        if input.engine.checking:
            var.engine.check_none(_is_negative.sum(var.detach()), RangeCheck(ArgumentError, message))
    else:
        var = number(name, "var", var)
        if var < 0:
            raise ArgumentError(message)
    return reduced(_gaussian, reduction, input, target, var, eps, constant)


def _spread(function: str, input: Tensor, var: Tensor) -> Tensor:
    """The variance as it broadcasts to the input."""
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        return unsqueeze(var, -1)
    ones = [(n, m) for n, m in zip(var.shape, input.shape, strict=False) if n != m]
    if len(var.shape) != len(input.shape) or len(ones) > 1 or any(n != 1 for n, _ in ones):
        raise ShapeError(
            f"[{function}] expected var shaped as input: {input.shape}, or without its last axis, or with one axis of "
            f"length 1, got {var.shape}"
        )
    return var
