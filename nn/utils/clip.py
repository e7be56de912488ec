"""Limits on gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

from alpha import functions as F
from alpha.arguments import flag, number
from alpha.autograd import no_grad
from alpha.changes import Rewriting
from alpha.conversion import tensor
from alpha.dtypes import float64
from alpha.errors import ArgumentError, NumericsError
from alpha.functions.operands import check_tensor, listed
from alpha.tensor import Tensor


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scales gradients in place so that their norm, all taken as one vector, is at most ``max_norm``.

    Returns the norm before, one float64 element: the host waits for the device only where it is read. With
    ``error_if_nonfinite`` it is read here, and a norm that is NaN or infinite raises NumericsError and leaves the
    gradients alone. A KeyboardInterrupt finds all gradients scaled or none.
    """
    name = "clip_grad_norm_"
    limit = _limit(name, max_norm)
    grads = _gradients(name, parameters)
    total = _total_norm(name, grads, norm_type, error_if_nonfinite)
    _scale(grads, limit, total)
    return total


@no_grad()
def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor) -> None:
    """Scales gradients in place by ``max_norm / total_norm`` where that is less than 1; if interrupted, all or none.

    ``total_norm``: their norm, as from ``get_total_norm``.
    """
    name = "clip_grads_with_norm_"
    check_tensor(name, total_norm)
    _scale(_gradients(name, parameters), _limit(name, max_norm), total_norm)


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of tensors, all taken as one vector, as one float64 element; arguments as for ``clip_grad_norm_``."""
    name = "get_total_norm"
    return _total_norm(name, _tensors(name, tensors), norm_type, error_if_nonfinite)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limits every element of the gradients to -clip_value..clip_value, in place; if interrupted, all or none."""
    clip_value = number("clip_grad_value_", "clip_value", clip_value)
    if not clip_value >= 0:
        raise ArgumentError(f"[clip_grad_value_] expected clip_value >= 0, got {clip_value}")
    grads = _gradients("clip_grad_value_", parameters)
    Rewriting([(grad, partial(grad.clamp, -clip_value, clip_value)) for grad in grads]).make()


def _scaled(grad: Tensor, scale: Tensor) -> Tensor:
    return grad * scale.to(grad.engine).astype(grad.dtype)


def _limit(name: str, max_norm: float) -> float:
    limit = number(name, "max_norm", max_norm)
    if not limit >= 0:
        raise ArgumentError(f"[{name}] expected max_norm >= 0, got {limit}")
    return limit


def _scale(grads: list[Tensor], limit: float, total: Tensor) -> None:
    scale = F.clamp(limit / (total + 1e-6), max=1.0)  # NaN stays, and shows in the gradients
    Rewriting([(grad, partial(_scaled, grad, scale)) for grad in grads if grad.numel()]).make()


def _total_norm(name: str, tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """The norm of all tensors."""
    norm_type = number(name, "norm_type", norm_type)
    if not norm_type > 0:
        raise ArgumentError(f"[{name}] expected norm_type > 0 (2.0, 1.0, float('inf')), got {norm_type}")
    reads = flag(name, "error_if_nonfinite", error_if_nonfinite)
    given = [one for one in tensors if one.numel()]
    if not given:
        return tensor(0.0, float64)
    total = _combine([_norm(one, norm_type).to(given[0].engine) for one in given], norm_type)
    if reads and not math.isfinite(total):
        raise NumericsError(
            f"[{name}] expected a finite norm of the gradients, got {total.item()}: lower the learning rate, or look "
            "for the layer whose gradient is not finite"
        )
    return total


def _tensors(name: str, given: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [given] if isinstance(given, Tensor) else listed(name, "tensors", given)
    check_tensor(name, *tensors)
    return tensors


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [one.grad for one in _tensors(name, parameters) if one.grad is not None]


def _norm(grad: Tensor, norm_type: float) -> Tensor:
    """A gradient's norm as a float64 scalar."""
    if norm_type == 2:
        return (grad * grad).sum().double().sqrt()
    size = grad.abs()
    if math.isinf(norm_type):
        largest: Tensor = size.max()
        return largest.double()
    return (size**norm_type).sum().double() ** (1 / norm_type)


def _combine(norms: list[Tensor], norm_type: float) -> Tensor:
    """The norm of a vector of norms, relative to the largest, so that no power overflows."""
    vector = F.stack(norms)
    largest: Tensor = vector.max()
    if math.isinf(norm_type):
        return largest
    relative = vector / F.where(largest == 0, 1.0, largest)
    total = largest * (relative**norm_type).sum() ** (1 / norm_type)
    return F.where(largest.isfinite(), total, largest)
