"""Activations made of pieces: ReLU6, hard tanh, sigmoid and swish, ELU and its relatives, shrinking, thresholds, PReLU.

At the points where pieces meet the gradients are PyTorch's.
"""

from __future__ import annotations

from typing import Any

from alpha.arguments import flag, number
from alpha.errors import ArgumentError, ShapeError
from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions.autocasting import lowered
from alpha.functions.elementwise import exp, expm1, ge, gt, le, lt, where
from alpha.functions.inplace import evaluated
from alpha.functions.operands import check_float
from alpha.functions.shape import reshape
from alpha.layout import is_channels_first
from alpha.tensor import Tensor

__all__ = [
    "celu",
    "elu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "prelu",
    "relu6",
    "selu",
    "softshrink",
    "threshold",
]


def of_floats(function: PointwiseFunction, name: str, x: Any, inplace: bool, *numbers: Any) -> Tensor:
    """A point-wise function of a tensor of floats and numbers; ``inplace`` writes the result into the tensor."""
    if symbols.is_symbolic(x, *numbers):
        return function(x, *numbers)
    check_float(name, x)
    if inplace is not False and flag(name, "inplace", inplace):
        return evaluated(f"{name}_", function, x, *numbers)
    return function(x, *numbers)


def _number(function: str, argument: str, value: Any) -> Any:
    """A number, or a symbol of ``alpha.pointwise``."""
    return value if symbols.is_symbolic(value) else number(function, argument, value)


# -- limits ------------------------------------------------------------------------------------------------------


@pointwise
def _limited(x: Any, low: Any, high: Any) -> Any:
    """Unlike ``clamp``, whose gradient at the limits is 1."""
    return where(le(x, low), low, where(ge(x, high), high, x))


@_limited.gradient
def _limited_gradient(grad: Any, x: Any, low: Any, high: Any) -> Any:
    return where(gt(x, low) & lt(x, high), grad, 0.0), None, None


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6); the gradient at 0 and at 6 is 0."""
    return of_floats(_limited, "relu6", input, inplace, 0.0, 6.0)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """min(max(x, min_val), max_val); the gradient at both is 0."""
    low, high = _number("hardtanh", "min_val", min_val), _number("hardtanh", "max_val", max_val)
    if not symbols.is_symbolic(low, high) and not low <= high:
        raise ArgumentError(f"[hardtanh] expected min_val <= max_val, got {low} and {high}")
    return of_floats(_limited, "hardtanh", input, inplace, low, high)


@pointwise
def _hardsigmoid(x: Any) -> Any:
    return where(le(x, -3), 0.0, where(ge(x, 3), 1.0, (x + 3) * (1 / 6)))


@_hardsigmoid.gradient
def _hardsigmoid_gradient(grad: Any, x: Any) -> Any:
    return where(lt(abs(x), 3), grad * (1 / 6), 0.0)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1/2 between -3 and 3, 0 below and 1 above."""
    return of_floats(_hardsigmoid, "hardsigmoid", input, inplace)


@pointwise
def _hardswish(x: Any) -> Any:
    return x * _hardsigmoid(x)


@_hardswish.gradient
def _hardswish_gradient(grad: Any, x: Any) -> Any:
    return where(ge(x, 3), grad, where(le(x, -3), 0.0, grad * (x * (1 / 3) + 0.5)))


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x). Howard et al., arXiv 1905.02244."""
    return of_floats(_hardswish, "hardswish", input, inplace)


# -- exponentials below 0 ----------------------------------------------------------------------------------------


@pointwise
def _elu(x: Any, below: Any, above: Any, within: Any) -> Any:
    """``above`` x above 0, and ``below`` (exp(``within`` x) - 1) below."""
    return where(gt(x, 0), x * above, expm1(x * within) * below)


@_elu.gradient
def _elu_gradient(grad: Any, x: Any, below: Any, above: Any, within: Any) -> Any:
    return where(gt(x, 0), grad * above, grad * (exp(x * within) * (below * within))), None, None, None


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above 0, alpha * (exp(x) - 1) below. Clevert et al., arXiv 1511.07289."""
    return of_floats(_elu, "elu", input, inplace, _number("elu", "alpha", alpha), 1.0, 1.0)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) below. Barron, arXiv 1704.07483."""
    slope = _number("celu", "alpha", alpha)
    if not symbols.is_symbolic(slope) and slope == 0:
        raise ArgumentError("[celu] expected alpha other than 0, got 0")
    return of_floats(_elu, "celu", input, inplace, slope, 1.0, 1 / slope)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """scale * elu(x, alpha) that keeps mean 0 and variance 1. Klambauer et al., arXiv 1706.02515."""
    return of_floats(_elu, "selu", input, inplace, _SELU_ALPHA * _SELU_SCALE, _SELU_SCALE, 1.0)


# -- a middle without a slope ------------------------------------------------------------------------------------


@pointwise
def _hardshrink(x: Any, width: Any) -> Any:
    return where(le(abs(x), width), 0.0, x)


@_hardshrink.gradient
def _shrinking_gradient(grad: Any, x: Any, width: Any) -> Any:
    return where(gt(abs(x), width), grad, 0.0), None


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where |x| <= lambd, elsewhere x."""
    return of_floats(_hardshrink, "hardshrink", input, False, _number("hardshrink", "lambd", lambd))


@pointwise
def _softshrink(x: Any, width: Any) -> Any:
    return where(gt(x, width), x - width, where(lt(x, -width), x + width, x * 0.0))


_softshrink.gradient(_shrinking_gradient)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where |x| <= lambd, elsewhere x nearer to 0 by lambd."""
    width = _number("softshrink", "lambd", lambd)
    if not symbols.is_symbolic(width) and not width >= 0:
        raise ArgumentError(f"[softshrink] expected lambd >= 0, got {width}")
    return of_floats(_softshrink, "softshrink", input, False, width)


@pointwise
def _threshold(x: Any, least: Any, value: Any) -> Any:
    return where(le(x, least), value, x)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x above the threshold, elsewhere ``value``."""
    least, other = _number("threshold", "threshold", threshold), _number("threshold", "value", value)
    return of_floats(_threshold, "threshold", input, inplace, least, other)


# -- a slope that is learned -------------------------------------------------------------------------------------


@pointwise
def _prelu(x: Any, slope: Any) -> Any:
    return where(gt(x, 0), x, x * slope)


@lowered
def prelu(input: Tensor, weight: Tensor, *, layout: str | None = None) -> Tensor:
    """x above 0, weight * x below; weight (1,), or (C,) with a slope for each channel. He et al., arXiv 1502.01852.

    Channels are the last axis, or with the layout ``"NCHW"`` the second.
    """
    check_float("prelu", input, weight)
    if weight.numel() == 1:
        slope = reshape(weight, ())
    elif weight.ndim > 1:
        raise ShapeError(f"[prelu] expected a weight (1,) or (C,), got {weight.shape}")
    else:
        axis = 1 if is_channels_first("prelu", layout) and input.ndim > 2 else input.ndim - 1
        slope = reshape(weight, (-1, *(1,) * (input.ndim - 1 - axis)))
        if input.ndim == 0 or input.shape[axis] != weight.shape[0]:
            raise ShapeError(
                f"[prelu] expected a weight of one element or of x.shape[{axis}], got x: {input.shape} and weight: "
                f"{weight.shape}"
            )
    return _prelu(input, slope)
