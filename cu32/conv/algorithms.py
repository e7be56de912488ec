"""ALGORITHMS: the one list of what can compute convolutions."""

from __future__ import annotations

from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.depthwise import Depthwise
from alpha.cu32.conv.depthwise_gradient import DepthwiseGradient
from alpha.cu32.conv.few_channels import FewChannels
from alpha.cu32.conv.few_results import FewResults
from alpha.cu32.conv.flat import FlatTensorCores
from alpha.cu32.conv.patch_tiles import Patches
from alpha.cu32.conv.tensor_cores import TensorCores, TensorCoresGradient, Threefold, ThreefoldGradient
from alpha.cu32.conv.tiles import Tiles
from alpha.cu32.conv.tiles_gradient import TilesGradient
from alpha.cu32.conv.windows import ThreefoldWindowGradient, WindowGradient

ALGORITHMS: list[Algorithm] = [
    Depthwise(),
    DepthwiseGradient(),
    FewResults(),
    FewChannels(),
    Patches(),
    TensorCores(),
    FlatTensorCores(),
    TensorCoresGradient(),
    WindowGradient(),
    Threefold(),
    ThreefoldGradient(),
    ThreefoldWindowGradient(),
    Tiles(),
    TilesGradient(),
]
"""In order of preference, which decides where costs are equal. One name belongs to one algorithm of an operator.

The last ones serve all problems.
"""
