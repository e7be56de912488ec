"""Activation layers made of pieces: ReLU6, hard tanh, sigmoid and swish, ELU and its relatives, shrinking, PReLU."""

from __future__ import annotations

import warnings

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import number
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError
from alpha.nn import init
from alpha.nn.activation import InplaceActivation
from alpha.nn.arguments import positive
from alpha.nn.layout import ImageLayer
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class ReLU6(InplaceActivation):
    """min(max(x, 0), 6); ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.relu6(x, self.inplace)


class Hardtanh(InplaceActivation):
    """min(max(x, min_val), max_val); ``inplace`` writes it into x. ``min_value`` and ``max_value`` are older names."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
        min_val = min_val if min_value is None else _renamed("min_value", "min_val", min_value)
        max_val = max_val if max_value is None else _renamed("max_value", "max_val", max_value)
        self.min_val, self.max_val = number("Hardtanh", "min_val", min_val), number("Hardtanh", "max_val", max_val)
        if not self.max_val > self.min_val:
            raise ArgumentError(f"[Hardtanh] expected min_val below max_val, got {min_val} and {max_val}")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.hardtanh(x, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


def _renamed(older: str, name: str, value: float) -> float:
    """The value that was given under an older name, with PyTorch's warning."""
    warnings.warn(f"[Hardtanh] {older} is an older name: use {name}", FutureWarning, stacklevel=3)
    return value


class Hardsigmoid(InplaceActivation):
    """x / 6 + 1/2 between -3 and 3, 0 below and 1 above; ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.hardsigmoid(x, self.inplace)


class Hardswish(InplaceActivation):
    """x * hardsigmoid(x); ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.hardswish(x, self.inplace)


class _WithAlpha(InplaceActivation):
    """Base of ELU and CELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = number(type(self).__name__, "alpha", alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class ELU(_WithAlpha):
    """x above 0, alpha * (exp(x) - 1) below; ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.elu(x, self.alpha, self.inplace)


class CELU(_WithAlpha):
    """x above 0, alpha * (exp(x / alpha) - 1) below; ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.celu(x, self.alpha, self.inplace)


class SELU(InplaceActivation):
    """The scaled ELU that keeps mean 0 and variance 1; ``inplace`` writes it into x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.selu(x, self.inplace)


class _Shrinking(Module):
    """Base of the layers that shrink a middle of width ``lambd`` to 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = number(type(self).__name__, "lambd", lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Hardshrink(_Shrinking):
    """0 where |x| <= lambd, elsewhere x."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.hardshrink(x, self.lambd)


class Softshrink(_Shrinking):
    """0 where |x| <= lambd, elsewhere x nearer to 0 by lambd."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.softshrink(x, self.lambd)


class RReLU(InplaceActivation):
    """LeakyReLU with slopes drawn from lower..upper in training, their mean in evaluation. Xu et al., arXiv 1505.00853.

    Args:
        lower, upper: between which slopes lie.
        inplace: whether the result is written into the argument.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower, self.upper = number("RReLU", "lower", lower), number("RReLU", "upper", upper)
        if not self.lower <= self.upper:
            raise ArgumentError(f"[RReLU] expected lower <= upper, got {lower} and {upper}")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.rrelu(x, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class Threshold(InplaceActivation):
    """x above the threshold, elsewhere ``value``; ``inplace`` writes it into x."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold, self.value = number("Threshold", "threshold", threshold), number("Threshold", "value", value)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.threshold(x, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


class PReLU(ImageLayer):
    """x above 0, weight * x below; the weight is learned.

    Args:
        num_parameters: 1, or the number of channels.
        init: the weight's first value.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
        layout: the order of axes, as for ``Conv2d``.
    """

    weight: Parameter

    @placed
    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        self.num_parameters, self.init = (
            positive(num_parameters, "num_parameters", "PReLU"),
            number("PReLU", "init", init),
        )
        self.weight = empty_parameter(self.num_parameters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to its first value."""
        init.constant_(self.weight, self.init)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.prelu(x, self.weight, layout=self.layout)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
