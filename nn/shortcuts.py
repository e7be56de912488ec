"""Residual blocks' sums: a shortcut that has a BatchNorm of its own is normalised in the pass that adds it."""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha import Tensor, is_grad_enabled
from alpha.functions.conv import slope_of
from alpha.functions.norm import batch_norm_sum
from alpha.nn.containers import Sequential
from alpha.nn.fusion import activation_of, conv_bn, conv_bn_activation, measured, only_runs_forward
from alpha.nn.measuring import Images, batch_norm_measured
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.records import BatchNormState

_FORWARDS: dict[type[Module], Any] = {kind: kind.forward for kind in (BatchNorm2d, Sequential)}


class Unnormalised(NamedTuple):
    """A shortcut that is still to be normalised: a convolution's result, and the BatchNorm behind it."""

    x: Tensor
    norm: BatchNorm2d
    state: BatchNormState | None  # of x, where it was found with it


def shortcut_of(module: Module | None, bn: Module, x: Tensor) -> Tensor | Unnormalised:
    """``module(x)``, or x where there is none; in training without its BatchNorm, if one pass can do both sums' norms.

    Args:
        module: a convolution and its BatchNorm2d one after the other, or any other module.
        bn: the normalisation of what the shortcut is added to.
        x: images.
    """
    if module is None:
        return x
    layers: list[Any] = list(module) if _is_plain(module, Sequential) else []  # type: ignore[call-overload]
    if (
        len(layers) == 2
        and is_grad_enabled()
        and x.engine.sums_batch_norms(x)
        and _is_plain(bn, BatchNorm2d)
        and _is_plain(layers[1], BatchNorm2d)
    ):
        y, state = measured(layers[0], layers[1], x)
        return Unnormalised(y, layers[1], state)
    found: Tensor = module(x)
    return found


def conv_bn_shortcut(
    conv: Module,
    bn: Module,
    x: Images,
    shortcut: Tensor | Unnormalised,
    activation: str | None = None,
    negative_slope: float = 0.01,
) -> Tensor:
    """``bn(conv(x), shortcut, activation, negative_slope)``, of a shortcut from ``shortcut_of``."""
    if isinstance(shortcut, Tensor):
        return conv_bn(conv, bn, x, shortcut, activation, negative_slope)
    y, state = measured(conv, bn, x)
    other, norm, other_state = shortcut
    ours: Any = bn
    first, second = ours.to_normalise(y, state), norm.to_normalise(other, other_state)
    slope = slope_of("batch_norm", activation, negative_slope)
    if first is not None and second is not None:
        total = batch_norm_sum(first, second, slope)
        if total is not None:
            return total
    added: Tensor = norm(other) if other_state is None else batch_norm_measured(norm, other, other_state, None, None)
    if state is not None:
        return batch_norm_measured(bn, y, state, added, slope)
    result: Tensor = bn(y, added, activation, negative_slope)
    return result


def conv_bn_activation_shortcut(
    conv: Module, bn: Module, activation: Module, x: Images, shortcut: Tensor | Unnormalised
) -> Tensor:
    """``activation(bn(conv(x)) + shortcut)``, of a shortcut from ``shortcut_of``."""
    if isinstance(shortcut, Tensor):
        return conv_bn_activation(conv, bn, activation, x, shortcut)
    name, slope = activation_of(activation)
    y = conv_bn_shortcut(conv, bn, x, shortcut, name, slope)
    return y if name is not None else activation(y)


def _is_plain(module: Module, kind: type[Module]) -> bool:
    """Whether calling a module only runs this class's forward, which nobody has replaced."""
    return only_runs_forward(module, kind) and kind.forward is _FORWARDS[kind]
