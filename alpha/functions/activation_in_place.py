"""Activations that are written into their argument: PyTorch's names that end in ``_``."""

from __future__ import annotations

from alpha.functions import activation, drawn_activation, piecewise
from alpha.tensor import Tensor

__all__ = ["celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_"]


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``celu`` written into input."""
    return piecewise.celu(input, alpha, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``elu`` written into input."""
    return piecewise.elu(input, alpha, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``hardtanh`` written into input."""
    return piecewise.hardtanh(input, min_val, max_val, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``leaky_relu`` written into input."""
    return activation.leaky_relu(input, negative_slope, inplace=True)


def relu_(input: Tensor) -> Tensor:
    """``relu`` written into input."""
    return activation.relu(input, inplace=True)


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """``rrelu`` written into input."""
    return drawn_activation.rrelu(input, lower, upper, training, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """``selu`` written into input."""
    return piecewise.selu(input, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """``threshold`` written into input."""
    return piecewise.threshold(input, threshold, value, inplace=True)
