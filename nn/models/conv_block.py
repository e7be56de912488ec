"""ConvBlock: a convolution, BatchNorm and an activation, as most networks string them together."""

from __future__ import annotations

from alpha import Tensor
from alpha.nn.conv import Conv2d, ConvTranspose2d
from alpha.nn.fusion import conv_bn
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d


class ConvBlock(Module):
    """activation(bn(conv(x))), the convolution plain or transposed."""

    def __init__(self, conv: Conv2d | ConvTranspose2d, activation: str = "relu", negative_slope: float = 0.01) -> None:
        super().__init__()
        self.conv = conv
        self.bn = BatchNorm2d(conv.out_channels)
        self.activation, self.negative_slope = activation, negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, OH, OW, OC)."""
        return conv_bn(self.conv, self.bn, x, activation=self.activation, negative_slope=self.negative_slope)

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"
