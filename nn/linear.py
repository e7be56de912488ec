"""Linear: the fully connected layer."""

from __future__ import annotations

import math

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.nn import init
from alpha.nn.arguments import positive
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class Linear(Module):
    """x @ weight.T + bias, of (..., in_features) to (..., out_features).

    ``weight`` is (out_features, in_features), ``bias`` (out_features,).

    Args:
        in_features: length of the input's last axis.
        out_features: length of the result's last axis.
        bias: whether a bias is learned.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    weight: Parameter
    bias: Parameter | None

    @placed
    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device = None, dtype: DtypeLike = None
    ) -> None:
        super().__init__()
        self.in_features = positive(in_features, "in_features", "Linear")
        self.out_features = positive(out_features, "out_features", "Linear")
        self.weight = empty_parameter(self.out_features, self.in_features)
        self.bias = empty_parameter(self.out_features) if flag("Linear", "bias", bias) else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight kaiming-uniform with a = sqrt(5), and the bias uniform on ±1/sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
