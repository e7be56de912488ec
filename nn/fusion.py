"""Operator fusion: a Linear takes its activation into its pass; in inference a convolution BatchNorm and activation.

The bits of a Linear and its activation are the same either way, forward and backward. If no graph is recorded, a
BatchNorm in evaluation mode is a factor and a shift per channel, and is folded into the filters and the bias before it:
w' = w * gamma / sqrt(var + eps), b' = beta + (b - mean) * gamma / sqrt(var + eps). The folded filters are kept with the
filters' storage, as long as nothing that they were made of changes.
Only the layers listed here are fused: a subclass, a hook or a ``forward`` that the user replaced is always called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from alpha import Tensor, is_grad_enabled, steps
from alpha import functions as F
from alpha.functions.autocasting import kept_lower
from alpha.functions.conv import slope_of
from alpha.nn.activation import GELU, LeakyReLU, Mish, ReLU, Sigmoid, SiLU, Tanh
from alpha.nn.conv import Conv2d
from alpha.nn.linear import Linear
from alpha.nn.measuring import Images, batch_norm_measured, conv_measured, settled, waiting
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.nn.piecewise import Hardswish, ReLU6
from alpha.nn.sync_norm import SyncBatchNorm
from alpha.records import BatchNormState


def _tanh_gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


@lru_cache(maxsize=64)
def _leaky_relu(slope: float) -> Callable[[Any], Any]:
    return partial(F.leaky_relu, negative_slope=slope)


_POINTWISE: dict[type[Module], Callable[[Any], Callable[[Any], Any]]] = {
    ReLU: lambda layer: F.relu,
    LeakyReLU: lambda layer: _leaky_relu(layer.negative_slope),
    Sigmoid: lambda layer: F.sigmoid,
    Tanh: lambda layer: F.tanh,
    GELU: lambda layer: F.gelu if layer.approximate == "none" else _tanh_gelu,
    SiLU: lambda layer: F.silu,
}
"""The functions of the activations that a Linear takes into its pass."""

_KEEPING: dict[type[Module], Callable[[Any], Any]] = {
    Hardswish: F.hardswish,
    Mish: F.mish,
    ReLU6: F.relu6,
    SiLU: F.silu,
}
"""Activations whose backward reads what they were given: in place they would copy it first."""

_NORMS: tuple[type[Module], ...] = (BatchNorm2d, SyncBatchNorm)
"""The normalisations of images that take a residual and an activation; in evaluation mode they are one function."""

_FUSED: tuple[type[Module], ...] = (Conv2d, *_NORMS, Linear, *_POINTWISE, *_KEEPING)
_FORWARDS: dict[type[Module], Callable[..., Any]] = {kind: kind.forward for kind in _FUSED}
_KEY = "folded"
"""Key of the folded filters in the cache of the filters' storage."""


def conv_bn(
    conv: Module,
    bn: Module,
    x: Images,
    residual: Tensor | None = None,
    activation: str | None = None,
    negative_slope: float = 0.01,
) -> Tensor:
    """``bn(conv(x), residual, activation, negative_slope)``; as one convolution where the result is the same.

    Args:
        conv, bn: a Conv2d and a BatchNorm2d, or modules in their places.
        x: (N, H, W, C), or what ``conv_bn_waiting`` gave.
        residual, activation, negative_slope: as ``BatchNorm2d.forward`` takes them.
    """
    if _is_plain(conv, Conv2d) and _is_norm(bn) and conv.layout == bn.layout:  # type: ignore[attr-defined]
        folded = _folded(conv, bn)
        if folded is not None:
            return _convolve(conv, settled(x), *folded, residual, activation, negative_slope)
    y, state = measured(conv, bn, x, residual)
    if state is not None:
        return batch_norm_measured(bn, y, state, residual, slope_of("batch_norm", activation, negative_slope))
    result: Tensor = bn(y, residual=residual, activation=activation, negative_slope=negative_slope)
    return result


def conv_bn_waiting(
    conv: Module, bn: Module, x: Images, activation: str | None = None, negative_slope: float = 0.01
) -> Images:
    """``conv_bn`` for a convolution, which may normalise what it reads: for ``conv_bn`` and ``conv_bn_shortcut``."""
    if not _measures(conv, bn):
        return conv_bn(conv, bn, x, None, activation, negative_slope)
    y, state = conv_measured(conv, bn, x, None)
    if state is None:
        result: Tensor = bn(y, activation=activation, negative_slope=negative_slope)
        return result
    return waiting(bn, y, state, slope_of("batch_norm", activation, negative_slope))


def measured(
    conv: Module, bn: Module, x: Images, residual: Tensor | None = None
) -> tuple[Tensor, BatchNormState | None]:
    """``conv(x)``, and the statistics that bn in training would take of it, if they have been found with it."""
    return conv_measured(conv, bn, x, residual) if _measures(conv, bn) else (conv(settled(x)), None)


def _measures(conv: Module, bn: Module) -> bool:
    """Whether both do nothing but what their classes do in training."""
    return bn.training and _is_plain(conv, Conv2d) and _is_plain(bn, BatchNorm2d)


def conv_bn_activation_waiting(conv: Module, bn: Module, activation: Module, x: Images) -> Images:
    """``conv_bn_activation`` for a convolution, which may normalise what it reads."""
    name, slope = activation_of(activation)
    if name is None or not _is_norm(bn):
        return conv_bn_activation(conv, bn, activation, x)
    return conv_bn_waiting(conv, bn, x, name, slope)


def conv_bn_activation(
    conv: Module, bn: Module, activation: Module, x: Images, residual: Tensor | None = None
) -> Tensor:
    """``activation(bn(conv(x)) + residual)``, in as few passes over memory as give the same result.

    Args:
        conv, bn: as for ``conv_bn``; any other normalisation may stand in the place of BatchNorm2d.
        activation: any module; ReLU and LeakyReLU are taken into the pass of the BatchNorm2d.
        x: images, or what ``conv_bn_activation_waiting`` gave.
        residual: added before the activation, shaped as the result.
    """
    name, slope = activation_of(activation)
    y: Tensor
    if _is_norm(bn):
        y = conv_bn(conv, bn, x, residual, name, slope)
        return y if name is not None else activation(y)
    y = bn(conv(settled(x)))
    y = activation(y if residual is None else y + residual)
    return y


def run(modules: Sequence[Module], x: Any) -> Any:
    """The modules one after another, some of them in one pass.

    Conv2d, BatchNorm2d and ReLU or LeakyReLU in a row run as one convolution where no graph is recorded, and
    BatchNorm2d and ReLU or LeakyReLU as one normalisation; a Linear and an activation as one product.
    """
    at = 0
    while at < len(modules):
        if _is_plain(modules[at], Conv2d):
            count, x = _run_conv(modules[at], modules[at + 1 : at + 4], x)
            at += count
        elif at + 1 < len(modules) and _is_norm(modules[at]):
            count, x = _run_bn(modules[at], modules[at + 1], x)
            at += count
        elif at + 1 < len(modules) and _is_plain(modules[at], Linear) and _is_pointwise(modules[at + 1]):
            x = linear_activation(modules[at], modules[at + 1], x)
            at += 2
        else:
            x = modules[at](x)
            at += 1
    return x


def linear_activation(linear: Any, activation: Any, x: Any) -> Any:
    """``activation(linear(x))``; in one pass where both are layers of this package whose calls do nothing else."""
    if _is_plain(linear, Linear) and _is_pointwise(activation):
        return F.linear(x, linear.weight, linear.bias, _POINTWISE[type(activation)](activation))
    return activation(linear(x))


def linear_function(linear: Any, function: Callable[[Any], Any], x: Any) -> Any:
    """``function(linear(x))``; in one pass where it is ReLU's or GELU's and the layer's call does nothing else."""
    if function in (F.relu, F.gelu) and _is_plain(linear, Linear):
        return F.linear(x, linear.weight, linear.bias, function)
    return function(linear(x))


def _is_pointwise(module: Module) -> bool:
    """Whether calling a module only runs an activation that a Linear takes into its pass."""
    return type(module) in _POINTWISE and _is_plain(module, type(module))


def _run_conv(conv: Any, behind: Sequence[Module], x: Any) -> tuple[int, Any]:
    """Runs a convolution with the following modules that it fuses; returns how many there were, and the result."""
    folds = behind and _is_norm(behind[0]) and conv.layout == behind[0].layout  # type: ignore[attr-defined]
    folded = _folded(conv, behind[0]) if folds else None
    if is_grad_enabled():
        return _run_measured(conv, behind, x)
    x = settled(x)
    (weight, bias), count = ((conv.weight, conv.bias), 1) if folded is None else (folded, 2)
    activation, slope = activation_of(behind[count - 1]) if len(behind) >= count else (None, 0.0)
    return count + (activation is not None), _convolve(conv, x, weight, bias, None, activation, slope)


def _run_measured(conv: Any, behind: Sequence[Module], x: Any) -> tuple[int, Any]:
    """Runs a convolution in training, with the BatchNorm and the activation behind it if it has measured for that.

    If another convolution follows, they may wait for that.
    """
    y, state = measured(conv, behind[0], x) if behind else (conv(settled(x)), None)
    if state is None:
        return 1, y
    name, slope = activation_of(behind[1]) if len(behind) > 1 else (None, 0.0)
    count, factor = 2 + (name is not None), slope_of("batch_norm", name, slope)
    if len(behind) >= count and _is_plain(behind[count - 1], Conv2d):
        return count, waiting(behind[0], y, state, factor)
    return count, batch_norm_measured(behind[0], y, state, None, factor)


def _run_bn(bn: Any, behind: Any, x: Any) -> tuple[int, Any]:
    """Runs a BatchNorm2d with the activation behind it, where it takes that over; returns how many ran, and the result.

    An activation that would copy what it writes over does not write over it.
    """
    name, slope = activation_of(behind)
    y, kind = bn(x, None, name, slope), type(behind)
    if name is None and kind in _KEEPING and behind.inplace and is_grad_enabled() and _is_plain(behind, kind):
        return 2, _KEEPING[kind](y)
    return (1, y) if name is None else (2, y)


def activation_of(module: Any) -> tuple[str | None, float]:
    """The name and slope of an activation that a convolution can apply."""
    if _is_plain(module, ReLU):
        return "relu", 0.0
    if _is_plain(module, LeakyReLU) and module.negative_slope >= 0:
        return "leaky_relu", module.negative_slope
    return None, 0.0


def _convolve(
    conv: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str | None,
    slope: float,
) -> Tensor:
    x, padding = conv.padded(x)
    steps = (conv.stride, padding, conv.dilation, conv.groups)
    return F.conv2d(x, weight, bias, *steps, residual, activation, slope, layout=conv.layout)


def only_runs_forward(module: Module, kind: type[Module]) -> bool:
    """Whether calling a module only runs the forward of its class, which is this one."""
    hooks = module._hooks
    return type(module) is kind and "forward" not in vars(module) and (hooks is None or not hooks.are_of_calls)


def _is_plain(module: Module, kind: type[Module]) -> bool:
    """Whether calling a module only runs this layer's forward."""
    return only_runs_forward(module, kind) and kind.forward is _FORWARDS[kind]


def _is_norm(module: Module) -> bool:
    """Whether calling a module only runs such a normalisation."""
    return type(module) in _NORMS and _is_plain(module, type(module))


def _folded(conv: Any, bn: Any) -> tuple[Tensor, Tensor] | None:
    """The convolution's filters and bias with the BatchNorm folded in, cached; None where it cannot be folded."""
    weight: Tensor = conv.weight
    kept = weight.storage.cache
    parts = (weight, conv.bias, bn.weight, bn.bias, bn.running_mean, bn.running_var)
    if bn.training or is_grad_enabled() or not _folds(parts):
        kept.pop(_KEY, None)  # in training the memory is freed
        return None
    if not steps.keeps([part for part in parts if part is not None]):
        return None
    entry = kept.get(_KEY)
    if entry is None or not entry.serves(parts, bn.eps):
        if steps.is_capturing():
            return None
        entry = kept[_KEY] = _Folded(parts, bn.eps)
    steps.hold(entry)
    return kept_lower(entry.weight), kept_lower(entry.bias)


def _folds(parts: tuple[Tensor | None, ...]) -> bool:
    """Whether these tensors fit each other, and change only where their versions show it."""
    weight, mean, var = parts[0], parts[4], parts[5]
    if weight is None or mean is None or var is None or weight.storage.exported:
        return False
    channels, dtype, engine = weight.shape[:1], weight.dtype, weight.storage.engine
    for part in parts[1:]:
        if part is not None:
            storage = part.storage
            if part.shape != channels or part.dtype != dtype or storage.engine is not engine or storage.exported:
                return False
    return True


class _Folded:
    """Folded filters and bias, and the tensors that they were made of, with their versions."""

    __slots__ = ("_eps", "_sources", "bias", "weight")

    def __init__(self, parts: tuple[Tensor | None, ...], eps: float) -> None:
        self._eps = eps
        self._sources = tuple([None if part is None else _Source(part) for part in parts])
        self.weight, self.bias = _fold(parts, eps)

    def serves(self, parts: tuple[Tensor | None, ...], eps: float) -> bool:
        """Whether folding these tensors would give the same result."""
        if eps != self._eps:
            return False
        for source, part in zip(self._sources, parts, strict=True):
            if part is None or source is None:
                if not (part is None and source is None):
                    return False
            elif not source.is_still(part):
                return False
        return True


class _Source:
    """A tensor's place in memory and the version seen there; it does not keep the memory."""

    __slots__ = ("_offset", "_shape", "_storage", "_strides", "_version")

    def __init__(self, tensor: Tensor) -> None:
        self._storage, self._version = weakref.ref(tensor.storage), tensor.storage.version
        self._offset, self._shape, self._strides = tensor.offset, tensor.shape, tensor.strides

    def is_still(self, tensor: Tensor) -> bool:
        """Whether a tensor is unchanged: the same memory and version."""
        storage = tensor.storage
        return (
            self._storage() is storage
            and self._version == storage.version
            and self._offset == tensor.offset
            and self._strides == tensor.strides
            and self._shape == tensor.shape
        )


def _fold(parts: tuple[Tensor | None, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The filters times gamma / sqrt(var + eps), and beta + (bias - mean) * gamma / sqrt(var + eps)."""
    weight, bias, gamma, beta, mean, var = parts
    assert weight is not None and mean is not None and var is not None
    compute = weight.engine.elementwise
    scale = compute("reciprocal", compute("sqrt", compute("add", var, eps)))
    if gamma is not None:
        scale = compute("mul", scale, gamma)
    shift = compute("neg", mean) if bias is None else compute("sub", bias, mean)
    shift = compute("mul", shift, scale)
    if beta is not None:
        shift = compute("add", shift, beta)
    column = scale.strided(scale.offset, (scale.shape[0], 1, 1, 1), (scale.strides[0], 1, 1, 1))
    return compute("mul", weight, column), shift
