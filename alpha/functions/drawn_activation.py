"""Activations that draw: LeakyReLU with random slopes, and softmax of logits with Gumbel noise."""

from __future__ import annotations

from typing import Any

from alpha.arguments import flag, number, one_axis
from alpha.errors import ArgumentError, described
from alpha.expressions.functions import pointwise
from alpha.functions.activation import leaky_relu, softmax
from alpha.functions.drawing import rand_like
from alpha.functions.elementwise import clamp, le, log, log1p, where
from alpha.functions.extremes import argmax
from alpha.functions.indexing import one_hot
from alpha.functions.inplace import overwrite
from alpha.functions.operands import check_float
from alpha.tensor import Tensor

__all__ = ["gumbel_softmax", "rrelu"]


@pointwise
def _sloped(x: Any, slope: Any) -> Any:
    return where(le(x, 0), x * slope, x)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """LeakyReLU whose slopes below 0 are drawn uniformly from lower..upper, or are their mean unless ``training``.

    Xu et al., arXiv 1505.00853.
    """
    check_float("rrelu", input)
    least, most = number("rrelu", "lower", lower), number("rrelu", "upper", upper)
    if not least <= most < float("inf") or least == -float("inf"):
        raise ArgumentError(f"[rrelu] expected finite lower <= upper, got {lower} and {upper}")
    if not flag("rrelu", "training", training):
        return leaky_relu(input, (least + most) / 2, inplace)
    slope = rand_like(input.detach()) * (most - least) + least
    return overwrite("rrelu_", input, _sloped, slope) if flag("rrelu", "inplace", inplace) else _sloped(input, slope)


_LEAST_DRAWN = 1e-30
"""What is drawn in place of 0, whose logarithm is infinite."""


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Softmax of (logits + Gumbel noise) / tau along an axis: probabilities that are drawn, and differentiable.

    ``hard`` gives the one-hot vectors of the largest instead, with the same gradient. ``eps`` says nothing, as in
    PyTorch. Jang et al., arXiv 1611.01144; Maddison et al., arXiv 1611.00712.
    """
    check_float("gumbel_softmax", logits)
    temperature = number("gumbel_softmax", "tau", tau)
    if not temperature > 0:
        raise ArgumentError(f"[gumbel_softmax] expected tau > 0, got {described(tau)}")
    axis = one_axis("gumbel_softmax", dim, logits.ndim)
    drawn = clamp(-log1p(-rand_like(logits.detach())), min=_LEAST_DRAWN)
    soft = softmax((logits - log(drawn)) / temperature, axis)
    if not flag("gumbel_softmax", "hard", hard):
        return soft
    order = (*range(axis), logits.ndim - 1, *range(axis, logits.ndim - 1))
    best = one_hot(argmax(soft.detach(), axis), logits.shape[axis]).permute(order).astype(logits.dtype)
    return best - soft.detach() + soft
