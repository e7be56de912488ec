"""Layers that compare vectors: CosineSimilarity, PairwiseDistance, Bilinear."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.nn import init
from alpha.nn.arguments import positive
from alpha.nn.function_layer import FunctionLayer
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class CosineSimilarity(FunctionLayer, function=F.cosine_similarity, inputs=2):
    """The cosine of the angle between vectors along an axis."""


class PairwiseDistance(FunctionLayer, function=F.pairwise_distance, inputs=2):
    """The p-norm of the difference of vectors along the last axis."""


class Bilinear(Module):
    """sum over i, j of x1[i] weight[o, i, j] x2[j], + bias[o].

    ``weight`` is (out_features, in1_features, in2_features), ``bias`` (out_features,), both uniform on
    ±1 / sqrt(in1_features) at first.

    Args:
        in1_features, in2_features: lengths of the inputs' last axes.
        out_features: length of the result's last axis.
        bias: whether a bias is learned.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    weight: Parameter
    bias: Parameter | None

    @placed
    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        self.in1_features = positive(in1_features, "in1_features", "Bilinear")
        self.in2_features = positive(in2_features, "in2_features", "Bilinear")
        self.out_features = positive(out_features, "out_features", "Bilinear")
        self.weight = empty_parameter(self.out_features, self.in1_features, self.in2_features)
        self.bias = empty_parameter(self.out_features) if flag("Bilinear", "bias", bias) else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias uniform on ±1 / sqrt(in1_features)."""
        bound = self.in1_features**-0.5
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(..., in1_features) and (..., in2_features) to (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"
