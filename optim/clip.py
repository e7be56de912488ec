"""Limits on gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

from alpha.autograd import no_grad
from alpha.errors import ArgumentError, NumericsError
from alpha.tensor import Tensor
from optim.optimizer import gradients


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> float:
    """Scales gradients in place so that their norm, all taken as one vector, is at most ``max_norm``.

    Returns the norm before. With ``error_if_nonfinite`` a norm that is NaN or infinite raises NumericsError and leaves
    the gradients alone.
    """
    name = "clip_grad_norm_"
    if not max_norm >= 0:
        raise ArgumentError(f"[{name}] expected max_norm >= 0, got {max_norm!r}")
    if not norm_type > 0:
        raise ArgumentError(f"[{name}] expected norm_type > 0 (2.0, 1.0, float('inf')), got {norm_type!r}")
    grads = _gradients(parameters)
    norms = [_norm(grad, norm_type) for grad in grads]
    total = _combine(norms, norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise NumericsError(
            f"[{name}] expected a finite norm of the gradients, got {total}: lower the learning rate, or look for the "
            "layer whose gradient is not finite"
        )
    scale = max_norm / (total + 1e-6)
    if not scale >= 1:  # NaN included
        for grad in grads:
            grad.mul_(scale)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limits every element of the gradients to -clip_value..clip_value, in place."""
    if not clip_value >= 0:
        raise ArgumentError(f"[clip_grad_value_] expected clip_value >= 0, got {clip_value!r}")
    for grad in _gradients(parameters):
        grad.copy_(grad.clamp(-clip_value, clip_value))


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else parameters
    return gradients(tensors)


def _norm(grad: Tensor, norm_type: float) -> float:
    if grad.numel() == 0:
        return 0.0
    if norm_type == 2:
        return math.sqrt(float((grad * grad).sum()))
    size = grad.abs()
    if math.isinf(norm_type):
        return float(size.max())
    return math.pow(float((size**norm_type).sum()), 1 / norm_type)


def _combine(norms: list[float], norm_type: float) -> float:
    """The norm of a vector of norms, in float64 and relative to the largest, so that no power overflows."""
    if any(math.isnan(norm) for norm in norms):
        return math.nan
    largest = max(norms, default=0.0)
    if math.isinf(norm_type) or largest == 0 or math.isinf(largest):
        return largest
    return largest * math.pow(math.fsum(math.pow(norm / largest, norm_type) for norm in norms), 1 / norm_type)
