"""Activation layers: ReLU and its relatives, smooth ones, softmax; see ``nn.piecewise`` for those made of pieces."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, number, whole
from alpha.errors import ShapeError
from alpha.functions.operands import check_float
from alpha.nn.arguments import choice
from alpha.nn.layout import ImageLayer
from alpha.nn.module import Module


class InplaceActivation(Module):
    """Base of activations that may write their result into their argument.

    Args:
        inplace: whether they do.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = flag(type(self).__name__, "inplace", inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(InplaceActivation):
    """max(x, 0); ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.relu(x, self.inplace)


class LeakyReLU(InplaceActivation):
    """max(x, 0) + negative_slope * min(x, 0); ``inplace`` writes it into x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.leaky_relu(x, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{', inplace=True' if self.inplace else ''}"


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


class SiLU(InplaceActivation):
    """x * sigmoid(x); ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.silu(x, self.inplace)


class Mish(InplaceActivation):
    """x * tanh(softplus(x)); ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.mish(x, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; see ``functional.softplus``."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = number("Softplus", "beta", beta)
        self.threshold = number("Softplus", "threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.logsigmoid(x)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.tanhshrink(x)


class GLU(Module):
    """a * sigmoid(b) for the halves a and b of an axis."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = whole("GLU", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """An axis of even length to half of it."""
        return F.glu(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongAxis(Module):
    """Base of softmax and its relatives; without ``dim`` it is the axis that ``functional.softmax`` takes then."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = None if dim is None else whole(type(self).__name__, "dim", dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softmax(x, self.dim)


class Softmax2d(ImageLayer):
    """exp(x) / sum(exp(x)) along the channels of images (N, H, W, C), or of one (H, W, C).

    Args:
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(self, *, layout: str | None = None) -> None:
        super().__init__()
        self._set_layout(layout)

    def forward(self, x: Tensor) -> Tensor:
        """Images to the same."""
        check_float("Softmax2d", x)
        if x.ndim not in (3, 4):
            raise ShapeError(f"[Softmax2d] expected images with 4 axes or one with 3, got {x.shape}")
        return F.softmax(x, -3 if self.layout == "NCHW" else -1)


class Softmin(_AlongAxis):
    """The softmax of -x along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softmin(x, self.dim)


class LogSoftmax(_AlongAxis):
    """log(softmax(x)) along an axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.log_softmax(x, self.dim)
