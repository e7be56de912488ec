"""A batch normalisation of evaluation mode taken into the weights of the layer before it."""

from __future__ import annotations

import copy
from typing import TypeVar

from alpha import Tensor, get_image_layout
from alpha import functions as F
from alpha.arguments import flag
from alpha.autograd import no_grad
from alpha.errors import ArgumentError
from alpha.functions.operands import check_tensor
from alpha.nn.conv import ConvNd
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter

Layer = TypeVar("Layer", bound=Module)


def fuse_conv_bn_eval(conv: Layer, bn: Module, transpose: bool = False) -> Layer:
    """A copy of a convolution whose result is ``bn(conv(x))``, of layers in evaluation mode.

    ``transpose``: whether it is a transposed one.
    """
    name = "fuse_conv_bn_eval"
    if not isinstance(conv, ConvNd) or conv.transposed != flag(name, "transpose", transpose):
        raise ArgumentError(f"[{name}] expected a convolution, transposed if transpose=True, got {type(conv).__name__}")
    fused = _fused(name, conv, bn)
    axis = (1 if conv.layout == "NCHW" else conv.weight.ndim - 1) if transpose else 0
    fused.weight, fused.bias = _weights(conv.weight, conv.bias, *_statistics(name, bn), axis)
    return fused


def fuse_linear_bn_eval(linear: Layer, bn: Module) -> Layer:
    """A copy of a Linear whose result is ``bn(linear(x))``, of layers in evaluation mode."""
    name = "fuse_linear_bn_eval"
    if not isinstance(linear, Linear):
        raise ArgumentError(f"[{name}] expected a Linear, got {type(linear).__name__}")
    fused = _fused(name, linear, bn)
    fused.weight, fused.bias = _weights(linear.weight, linear.bias, *_statistics(name, bn), 0)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and the bias of a convolution and the batch normalisation behind it as one.

    Args:
        conv_w, conv_b: the convolution's, in the image layout that is set.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: the running mean and variance, eps, weight and bias.
        transpose: whether the convolution is a transposed one.
    """
    check_tensor(
        "fuse_conv_bn_weights", *[one for one in (conv_w, conv_b, bn_rm, bn_rv, bn_w, bn_b) if one is not None]
    )
    axis = (1 if get_image_layout() == "NCHW" else conv_w.ndim - 1) if transpose else 0
    return _weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, axis)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """The weight and the bias of a Linear and the batch normalisation behind it; arguments as for a convolution's."""
    check_tensor("fuse_linear_bn_weights", linear_w, bn_rm, bn_rv, bn_w, bn_b)
    return _weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


Statistics = tuple[Tensor, Tensor, float, Tensor | None, Tensor | None]


def _statistics(name: str, bn: Module) -> Statistics:
    parts = [getattr(bn, part, None) for part in ("running_mean", "running_var", "eps", "weight", "bias")]
    if parts[0] is None or parts[1] is None:
        raise ArgumentError(f"[{name}] expected a batch normalisation with running statistics, got {bn!r}")
    return tuple(parts)  # type: ignore[return-value]


def _fused(name: str, layer: Layer, bn: Module) -> Layer:
    """A copy of a layer; both have to be in evaluation mode."""
    if layer.training or bn.training:
        raise ArgumentError(f"[{name}] expected both layers in evaluation mode, got one in training: call eval()")
    return copy.deepcopy(layer)


@no_grad()
def _weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    gamma: Tensor | None,
    beta: Tensor | None,
    axis: int,
) -> tuple[Parameter, Parameter]:
    """Both layers' weight and bias; ``axis``: the weight's axis of the result's channels."""
    factor = F.rsqrt(var + eps)
    factor = factor if gamma is None else factor * gamma
    shift = -mean * factor if bias is None else (bias - mean) * factor
    shift = shift if beta is None else shift + beta
    if weight.shape[axis] != factor.shape[0]:
        raise ArgumentError(
            f"[fuse_conv_bn_weights] expected {factor.shape[0]} channels of a result without groups along axis {axis}, "
            f"got a weight of shape {weight.shape}"
        )
    shape = [1] * weight.ndim
    shape[axis] = factor.shape[0]
    return Parameter(weight * factor.reshape(shape), weight.requires_grad), Parameter(shift)
