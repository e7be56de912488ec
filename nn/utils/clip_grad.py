"""Limits on gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

from alpha import functions as F
from alpha.arguments import flag, listed, number
from alpha.autograd import no_grad
from alpha.changes import Rewriting
from alpha.conversion import tensor
from alpha.distributed import owners
from alpha.dtypes import float64
from alpha.errors import ArgumentError, NumericsError, described
from alpha.functions.operands import check_tensor
from alpha.tensor import Tensor


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales gradients in place so that their norm, all taken as one vector, is at most ``max_norm``.

    Returns the norm before, one float64 element: the host waits for the device only where it is read. With
    ``error_if_nonfinite`` it is read here, and a norm that is NaN or infinite raises NumericsError and leaves the
    gradients alone. ``foreach`` chooses between PyTorch's implementations, and has no effect. A KeyboardInterrupt finds
    all gradients scaled or none.
    """
    name = "clip_grad_norm_"
    _check_foreach(name, foreach)
    max_norm = _limit(name, "max_norm", max_norm)
    params = _tensors(parameters)
    grads = [p.grad for p in params if p.grad is not None]
    shared = owners.of(params)
    if shared is None:
        total = _total(name, grads, norm_type, error_if_nonfinite)
    else:
        total = _total_of_ranks(name, params, norm_type, error_if_nonfinite, shared)
    _scale(grads, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """``clip_grad_norm_`` under its older name; calling it warns."""
    warnings.warn("[clip_grad_norm] is an older name: use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limits every element of the gradients to -clip_value..clip_value, in place; if interrupted, all or none.

    ``foreach`` chooses between PyTorch's implementations, and has no effect.
    """
    _check_foreach("clip_grad_value_", foreach)
    clip_value = _limit("clip_grad_value_", "clip_value", clip_value)
    grads = _gradients(parameters)
    Rewriting([(grad, partial(grad.clamp, -clip_value, clip_value)) for grad in grads]).make()


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of tensors, such as gradients, all taken as one vector: one float64 element. As ``clip_grad_norm_``."""
    _check_foreach("get_total_norm", foreach)
    return _total("get_total_norm", _tensors(tensors), norm_type, error_if_nonfinite)


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales gradients, whose norm is ``total_norm``, in place as ``clip_grad_norm_`` does."""
    name = "clip_grads_with_norm_"
    _check_foreach(name, foreach)
    if not isinstance(total_norm, Tensor) or total_norm.numel() != 1:
        raise ArgumentError(f"[{name}] expected total_norm as a tensor of one element, got {described(total_norm)}")
    _scale(_gradients(parameters), _limit(name, "max_norm", max_norm), total_norm.detach().reshape(()))


def _total(name: str, tensors: list[Tensor], norm_type: Any, error_if_nonfinite: Any) -> Tensor:
    norm_type = _checked_type(name, norm_type)
    filled = [one for one in tensors if one.numel()]
    if not filled:
        return tensor(0.0, float64)
    total = _combine([_norm(one, norm_type).to(filled[0].engine) for one in filled], norm_type)
    return _finite(name, total, error_if_nonfinite)


def _total_of_ranks(
    name: str, params: list[Tensor], norm_type: Any, error_if_nonfinite: Any, shared: owners.Owners
) -> Tensor:
    """The norm of gradients of which each rank has some; all ranks ask for it together, and get the same."""
    norm_type = _checked_type(name, norm_type)
    norms = [
        _norm(p.grad, norm_type).item() if p.grad is not None and p.numel() and _is_ours(p, shared) else None
        for p in params
    ]
    found = owners.shared(shared, norms)
    if not found:
        return tensor(0.0, float64)
    engine = params[0].engine
    total = _combine([tensor(norm, float64, engine=engine) for norm in found], norm_type)
    return _finite(name, total, error_if_nonfinite)


def _is_ours(param: Tensor, shared: owners.Owners) -> bool:
    """Whether this rank is the one that tells a gradient's norm: its owner, or rank 0 where all ranks have it."""
    return shared.ranks.get(param, 0) == shared.world.rank


def _checked_type(name: str, norm_type: Any) -> float:
    found = number(name, "norm_type", norm_type)
    if not found > 0:
        raise ArgumentError(f"[{name}] expected norm_type > 0 (2.0, 1.0, float('inf')), got {found}")
    return found


def _finite(name: str, total: Tensor, error_if_nonfinite: Any) -> Tensor:
    """The norm; NumericsError if it is to be finite and is not."""
    if flag(name, "error_if_nonfinite", error_if_nonfinite) and not math.isfinite(total):
        raise NumericsError(
            f"[{name}] expected a finite norm of the gradients, got {total.item()}: lower the learning rate, or look "
            "for the layer whose gradient is not finite"
        )
    return total


def _scale(grads: list[Tensor], max_norm: float, total: Tensor) -> None:
    scale = F.clamp(max_norm / (total + 1e-6), max=1.0)  # NaN stays, and shows in the gradients
    Rewriting([(grad, partial(_scaled, grad, scale)) for grad in grads if grad.numel()]).make()


def _scaled(grad: Tensor, scale: Tensor) -> Tensor:
    return grad * scale.to(grad.engine).astype(grad.dtype)


def _tensors(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    found = [tensors] if isinstance(tensors, Tensor) else listed("clip_grad", "parameters", tensors)
    check_tensor("clip_grad", *found)
    return found


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _tensors(parameters) if p.grad is not None]


def _limit(name: str, option: str, value: Any) -> float:
    limit = number(name, option, value)
    if not limit >= 0:
        raise ArgumentError(f"[{name}] expected {option} >= 0, got {limit}")
    return limit


def _check_foreach(name: str, foreach: Any) -> None:
    if foreach is not None and not isinstance(foreach, bool):
        raise ArgumentError(f"[{name}] expected foreach as True, False or None, got {described(foreach)}")


def _norm(grad: Tensor, norm_type: float) -> Tensor:
    """A tensor's norm as a float64 scalar."""
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
