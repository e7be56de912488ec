"""Activation layers: ReLU, LeakyReLU, Sigmoid, Tanh, GELU, SiLU, Softmax."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import number, whole
from alpha.errors import ArgumentError
from alpha.nn.arguments import choice
from alpha.nn.module import Module


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.relu(x)


class LeakyReLU(Module):
    """max(x, 0) + negative_slope * min(x, 0)."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.tanh(x)


class GELU(Module):
    """x times the normal distribution's CDF at x; ``approximate="tanh"`` for the formula with tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = choice(approximate, ("none", "tanh"), "approximate", "GELU")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.silu(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along an axis. ArgumentError where none is named."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        if dim is None:
            raise ArgumentError("[Softmax] expected dim, the axis to normalise along, got none: -1 is the last")
        self.dim = whole("Softmax", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
