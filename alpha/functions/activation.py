"""Activations: ReLU and its relatives, GELU, SiLU, softplus, softmax; PyTorch's names and semantics."""

from __future__ import annotations

import math

from alpha import dtypes
from alpha.arguments import number, one_axis
from alpha.autograd import Function
from alpha.errors import ArgumentError, described
from alpha.functions.elementwise import gt, maximum, mul, where
from alpha.functions.operands import call, check_float, check_tensor, compute, filled
from alpha.tensor import Tensor

__all__ = ["gelu", "leaky_relu", "log_softmax", "relu", "silu", "softmax", "softplus"]


class LeakyReLU(Function):
    """max(x, 0) + slope * min(x, 0)."""

    fresh = True

    def forward(self, x: Tensor, slope: float) -> Tensor:
        self.slope = slope
        y = x.engine.leaky_relu(x, slope)
        # The result has the argument's sign unless the slope is negative; a following layer keeps it anyway.
        self.save(y if slope >= 0 else x)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return grad.engine.leaky_relu_grad(grad, y, self.slope)


def relu(x: Tensor) -> Tensor:
    """max(x, 0), of integers too; the gradient at 0 is 0."""
    check_tensor("relu", x)
    if dtypes.is_integer(x.dtype):
        return maximum(x, 0)
    check_float("relu", x)
    return call(LeakyReLU, x, 0.0)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """max(x, 0) + negative_slope * min(x, 0); the gradient at 0 is negative_slope."""
    check_float("leaky_relu", x)
    slope = number("leaky_relu", "negative_slope", negative_slope)
    if slope == 0:  # a product all the same, as in PyTorch, where ReLU is none: of infinities it is NaN
        return where(gt(x, 0), x, mul(x, slope))
    return call(LeakyReLU, x, slope)


# -- smooth ------------------------------------------------------------------------------------------------------


class GELU(Function):
    """x * Phi(x), Phi the normal distribution's cumulative function."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return compute("mul", x, _normal(x))

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        density = compute("mul", compute("exp", compute("mul", compute("square", x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return compute("mul", grad, compute("add", _normal(x), compute("mul", x, density)))


def _normal(x: Tensor) -> Tensor:
    """(1 + erf(x / sqrt(2))) / 2."""
    return compute("mul", compute("add", compute("erf", compute("mul", x, math.sqrt(0.5))), 1), 0.5)


class TanhGELU(Function):
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))). Hendrycks & Gimpel, arXiv 1606.08415."""

    fresh = True
    SCALE = math.sqrt(2 / math.pi)
    CUBIC = 0.044715

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return compute("mul", compute("mul", x, 0.5), compute("add", self._tanh(x), 1))

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        tanh = self._tanh(x)
        inner = compute("mul", compute("add", compute("mul", compute("square", x), 3 * self.CUBIC), 1), self.SCALE)
        slope = compute("mul", compute("sub", 1, compute("square", tanh)), inner)
        half = compute("add", compute("mul", x, slope), compute("add", tanh, 1))
        return compute("mul", grad, compute("mul", half, 0.5))

    def _tanh(self, x: Tensor) -> Tensor:
        cubic = compute("add", compute("mul", compute("square", x), self.CUBIC), 1)
        return compute("tanh", compute("mul", compute("mul", x, cubic), self.SCALE))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) with the normal distribution's cumulative function Phi, or with ``approximate="tanh"`` close to it."""
    check_float("gelu", x)
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        raise ArgumentError(f'[gelu] expected approximate="none" or "tanh", got {described(approximate)}')
    return call(GELU if approximate == "none" else TanhGELU, x)


class SiLU(Function):
    """x / (1 + exp(-x))."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return compute("mul", x, compute("sigmoid", x))

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        gate = compute("sigmoid", x)
        rise = compute("add", compute("mul", x, compute("sub", 1, gate)), 1)
        return compute("mul", grad, compute("mul", gate, rise))


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish."""
    check_float("silu", x)
    return call(SiLU, x)


class Softplus(Function):
    """log(1 + exp(beta * x)) / beta, as max(z, 0) + log1p(exp(-|z|)) with z = beta * x."""

    fresh = True

    def forward(self, x: Tensor, beta: float) -> Tensor:
        self.beta = beta
        self.save(x)
        z = compute("mul", x, beta)
        small = compute("log1p", compute("exp", compute("neg", compute("abs", z))))
        # Divided first: beta * x may be beyond the largest number where x is not.
        return compute("add", compute("maximum", x, 0), compute("div", small, beta))

    def backward(self, grad: Tensor) -> Tensor:
        (x,) = self.saved
        # As exp(z) / (exp(z) + 1), which keeps what 1 / (1 + exp(-z)) loses far below 0; from 40 on it is 1.
        power = compute("exp", compute("minimum", compute("mul", x, self.beta), 40.0))
        return compute("mul", grad, compute("div", power, compute("add", power, 1)))


def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, without overflow."""
    check_float("softplus", x)
    beta = number("softplus", "beta", beta)
    if not beta > 0:
        raise ArgumentError(f"[softplus] expected beta > 0, got {beta}")
    return call(Softplus, x, beta)


# -- along an axis -----------------------------------------------------------------------------------------------


class Softmax(Function):
    """exp(x) / sum(exp(x)) along an axis."""

    fresh = True

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        y = compute("exp", _shifted(x, axis))
        compute("div", y, x.engine.reduce("sum", y, (axis,), True), out=y)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        total = grad.engine.reduce("sum", compute("mul", grad, y), (self.axis,), True)
        return compute("mul", compute("sub", grad, total), y)


class LogSoftmax(Function):
    """x - log(sum(exp(x))) along an axis."""

    fresh = True

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        y = _shifted(x, axis)
        total = x.engine.reduce("sum", compute("exp", y), (axis,), True)
        compute("sub", y, compute("log", total), out=y)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        total = grad.engine.reduce("sum", grad, (self.axis,), True)
        return compute("sub", grad, compute("mul", compute("exp", y), total))


def _shifted(x: Tensor, axis: int) -> Tensor:
    """x minus its largest element along an axis, so that no exponential overflows."""
    if x.shape[axis] == 0:
        return filled(x, 0)
    return compute("sub", x, x.engine.reduce("max", x, (axis,), True))


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, without overflow."""
    check_float("softmax", x)
    return call(Softmax, x, one_axis("softmax", dim, x.ndim))


def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """x - log(sum(exp(x))) along an axis, without overflow."""
    check_float("log_softmax", x)
    return call(LogSoftmax, x, one_axis("log_softmax", dim, x.ndim))
