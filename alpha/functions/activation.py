"""Activations: ReLU and its relatives, GELU, SiLU, softplus, softmax; PyTorch's names and semantics."""

from __future__ import annotations

import math
import warnings
from typing import Any

from alpha import dtypes
from alpha.arguments import flag, number, one_axis
from alpha.autograd import Function
from alpha.errors import ArgumentError, ShapeError, described
from alpha.expressions import symbols
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import cast, exp, gt, le, log1p, lt, maximum, sigmoid, square, tanh, where
from alpha.functions.operands import call, check_float, check_tensor
from alpha.functions.piecewise import of_floats
from alpha.functions.primitives import EXPRESSIONS
from alpha.functions.shape import reshape
from alpha.functions.splitting import split
from alpha.launches import SOFTMAX
from alpha.layout import is_channels_first
from alpha.tensor import Tensor

__all__ = [
    "gelu",
    "glu",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "relu",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanhshrink",
]


@pointwise
def _relu(x: Any) -> Any:
    return where(lt(x, 0), 0.0, x)  # of -0 it is -0, and of NaN NaN


@_relu.gradient
def _relu_gradient(grad: Any, x: Any) -> Any:
    """By the result, which a following layer keeps anyway."""
    return where(le(_relu(x), 0), 0.0, grad)


@pointwise
def _leaky_relu(x: Any, slope: Any) -> Any:
    return where(gt(x, 0), x, x * slope)


@_leaky_relu.gradient
def _leaky_relu_gradient(grad: Any, x: Any, slope: Any) -> Any:
    """By the result, which has the argument's sign as long as the slope is not negative."""
    return where(gt(_leaky_relu(x, slope), 0), grad, grad * slope), None


@pointwise
def _folded_relu(x: Any, slope: Any) -> Any:
    """LeakyReLU of a negative slope."""
    return where(gt(x, 0), x, x * slope)


@_folded_relu.gradient
def _folded_relu_gradient(grad: Any, x: Any, slope: Any) -> Any:
    return where(gt(x, 0), grad, grad * slope), None


EXPRESSIONS["relu"] = _relu


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), of integers too; the gradient at 0 is 0. ``inplace`` writes it into the input, which is of floats."""
    if inplace is not False and flag("relu", "inplace", inplace):
        return of_floats(_relu, "relu", input, True)
    found: Tensor | None = _relu.latest.launch_outside(input)
    if found is not None:
        return found
    if not (isinstance(input, Tensor) and input.dtype in dtypes.FLOATS) and not symbols.is_symbolic(input):
        check_tensor("relu", input)
        if dtypes.is_integer(input.dtype):
            return maximum(input, 0)
        check_float("relu", input)
    return _relu.evaluate(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """max(x, 0) + negative_slope * min(x, 0); the gradient at 0 is negative_slope. ``inplace`` writes into it."""
    if symbols.is_symbolic(input, negative_slope):
        return _folded_relu(input, negative_slope)  # whatever its slope is in a call
    check_float("leaky_relu", input)
    slope = number("leaky_relu", "negative_slope", negative_slope)
    # With a slope of 0 a product all the same, as in PyTorch, where ReLU is none: of infinities it is NaN.
    function = _leaky_relu if slope > 0 else _folded_relu
    return function(input, slope) if inplace is False else of_floats(function, "leaky_relu", input, inplace, slope)


# -- smooth ------------------------------------------------------------------------------------------------------


def _normal(x: Any) -> Any:
    """The normal distribution's cumulative function."""
    return symbols.apply("normal_cdf", x)


@pointwise
def _gelu(x: Any) -> Any:
    return x * _normal(x)


@_gelu.gradient
def _gelu_gradient(grad: Any, x: Any) -> Any:
    density = exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return grad * (_normal(x) + x * density)


_SCALE = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _bend(x: Any) -> Any:
    return tanh(x * (square(x) * _CUBIC + 1) * _SCALE)


@pointwise
def _tanh_gelu(x: Any) -> Any:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))). Hendrycks & Gimpel, arXiv 1606.08415."""
    return x * 0.5 * (_bend(x) + 1)


@_tanh_gelu.gradient
def _tanh_gelu_gradient(grad: Any, x: Any) -> Any:
    bend = _bend(x)
    slope = (1 - square(bend)) * ((square(x) * (3 * _CUBIC) + 1) * _SCALE)
    return grad * ((x * slope + (bend + 1)) * 0.5)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) with the normal distribution's cumulative function Phi, or with ``approximate="tanh"`` close to it."""
    _check("gelu", input)
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        raise ArgumentError(f'[gelu] expected approximate="none" or "tanh", got {described(approximate)}')
    return _gelu(input) if approximate == "none" else _tanh_gelu(input)


@pointwise
def _silu(x: Any) -> Any:
    return x * sigmoid(x)


@_silu.gradient
def _silu_gradient(grad: Any, x: Any) -> Any:
    gate = sigmoid(x)
    return grad * (gate * (x * (1 - gate) + 1))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), also called swish. ``inplace`` writes it into the input."""
    if inplace is not False:
        return of_floats(_silu, "silu", input, inplace)
    found: Tensor | None = _silu.latest.launch_outside(input)
    if found is not None:
        return found
    if isinstance(input, Tensor) and dtypes.is_complex(input.dtype):
        return input * sigmoid(input)
    _check("silu", input)
    return _silu(input)


def _below_zero(x: Any) -> Any:
    """-|x|, whose slope at 0 is -1: that of -|x| is 0 there, which makes second gradients wrong."""
    return where(x < 0, x, -x)


@pointwise
def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    """As max(z, 0) + log1p(exp(-|z|)) with z = beta * x."""
    # Divided first: beta * x may be beyond the largest number where x is not.
    return where(gt(x * beta, threshold), x, maximum(x, 0) + log1p(exp(-abs(x * beta))) / beta)


@_softplus.gradient
def _softplus_gradient(grad: Any, x: Any, beta: Any, threshold: Any) -> Any:
    """The sigmoid of z, by the forward's exponential, which loses nothing far below 0."""
    z = x * beta
    small = exp(_below_zero(z))
    return where(gt(z, threshold), grad, grad * (where(z < 0, small, 1) / (small + 1))), None, None


@in_float32
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, without overflow; where beta * x is above the threshold it is x."""
    _check("softplus", input)
    if not symbols.is_symbolic(beta):
        beta = number("softplus", "beta", beta)
        if not beta > 0:
            raise ArgumentError(f"[softplus] expected beta > 0, got {beta}")
    if not symbols.is_symbolic(threshold):
        threshold = number("softplus", "threshold", threshold)
    return _softplus(input, beta, threshold)


def _mish_factor(x: Any) -> Any:
    """tanh(softplus(x)) by w = exp(-|x|), which neither overflows nor cancels."""
    w = exp(_below_zero(x))
    square_of_w = w * w
    above, below = w * 2 + 1, w * 2 + square_of_w
    return where(x < 0, below / (below + 2), above / (above + square_of_w * 2))


@pointwise
def _mish(x: Any) -> Any:
    return x * _mish_factor(x)


@_mish.gradient
def _mish_gradient(grad: Any, x: Any) -> Any:
    factor = _mish_factor(x)
    return grad * (factor + x * sigmoid(x) * (1 - square(factor)))


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)). Misra, arXiv 1908.08681. ``inplace`` writes it into the input."""
    return of_floats(_mish, "mish", input, inplace)


@pointwise
def _logsigmoid(x: Any) -> Any:
    return where(x < 0, x, 0.0) - log1p(exp(-abs(x)))


@_logsigmoid.gradient
def _logsigmoid_gradient(grad: Any, x: Any) -> Any:
    """1 - sigmoid(x), by the forward's exponential, which loses nothing far above 0."""
    small = exp(_below_zero(x))
    return grad * (where(x < 0, 1, small) / (small + 1))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    return of_floats(_logsigmoid, "logsigmoid", input, False)


@pointwise
def _softsign(x: Any) -> Any:
    return x / (abs(x) + 1)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    if isinstance(input, Tensor) and dtypes.is_complex(input.dtype):
        return input / (1 + input.abs())
    return of_floats(_softsign, "softsign", input, False)


@pointwise
def _tanhshrink(x: Any) -> Any:
    return x - tanh(x)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    if isinstance(input, Tensor) and dtypes.is_complex(input.dtype):
        return input - tanh(input)
    return of_floats(_tanhshrink, "tanhshrink", input, False)


@pointwise
def _gated(x: Any, gate: Any) -> Any:
    return x * sigmoid(gate)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b) for the halves a and b of an axis. Dauphin et al., arXiv 1612.08083."""
    check_float("glu", input)
    axis = one_axis("glu", dim, input.ndim)
    if input.shape[axis] % 2:
        raise ShapeError(
            f"[glu] expected an axis of even length, got {input.shape[axis]} along axis {axis} of {input.shape}"
        )
    first, second = split(input, input.shape[axis] // 2, axis) if input.shape[axis] else (input, input)
    return _gated(first, second)


def _check(function: str, x: Any) -> None:
    """DtypeError unless a value is a Tensor of floats, or a symbol of ``alpha.pointwise``."""
    if not symbols.is_symbolic(x):
        check_float(function, x)


# -- along an axis -----------------------------------------------------------------------------------------------


class Softmax(Function):
    """exp(x) / sum(exp(x)) along an axis, or its logarithm."""

    fresh = True

    def forward(self, x: Tensor, axis: int, log: bool) -> Tensor:
        self.axis, self.log = axis, log
        y = x.engine.softmax(x, axis, log)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return grad.engine.softmax_grad(grad, y, self.axis, self.log)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        total: Tensor = (grad if self.log else grad * y).sum(self.axis, keepdim=True)
        return grad - exp(y) * total if self.log else y * (grad - total)


@in_float32
def softmax(input: Tensor, dim: int | None = None, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, without overflow, in another dtype if one is given.

    Where no axis is named it is PyTorch's: 0 for 0, 1 and 3 axes, else 1, with a warning; ArgumentError for images with
    channels last.
    """
    input = input if dtype is None else cast(input, dtype)
    found: Tensor | None = SOFTMAX.launch_outside(input, dim, False)
    return _along("softmax", input, dim, False) if found is None else found


def softmin(input: Tensor, dim: int | None = None, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """``softmax`` of -x."""
    input = input if dtype is None else cast(input, dtype)
    check_float("softmin", input)
    return _along("softmin", -input, dim, False)


@in_float32
def log_softmax(input: Tensor, dim: int | None = None, dtype: dtypes.DtypeLike | None = None) -> Tensor:
    """x - log(sum(exp(x))) along an axis, without overflow, in another dtype if one is given.

    Where no axis is named it is PyTorch's: 0 for 0, 1 and 3 axes, else 1, with a warning; ArgumentError for images with
    channels last.
    """
    input = input if dtype is None else cast(input, dtype)
    found: Tensor | None = SOFTMAX.launch_outside(input, dim, True)
    return _along("log_softmax", input, dim, True) if found is None else found


def _unsaid_axis(function: str, x: Tensor) -> int:
    """The axis that PyTorch takes where none is named, with a warning; ArgumentError for images with channels last."""
    if x.ndim > 3 and not is_channels_first(function, None):
        raise ArgumentError(f"[{function}] expected dim, the axis to normalise along, got none: -1 is the last")
    axis = 0 if x.ndim in (0, 1, 3) else 1
    warnings.warn(f"[{function}] expected dim, the axis to normalise along, got none: took {axis}", stacklevel=4)
    return axis


def _along(function: str, x: Tensor, dim: int | None, log: bool) -> Tensor:
    """Softmax or its logarithm, whose launches get to know the axis as it was given."""
    check_float(function, x)
    if dim is None:
        dim = _unsaid_axis(function, x)
    axis = one_axis(function, dim, max(x.ndim, 1))
    if x.ndim == 0:  # as if it had one axis
        return reshape(call(Softmax, reshape(x, (1,)), axis, log), ())
    y = call(Softmax, x, axis, log)
    if not y.requires_grad:
        x.storage.engine.alias(SOFTMAX, (x, axis, log), SOFTMAX, (x, dim, log))
    return y
