"""A small network for CIFAR-10 that trains in a few epochs: Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU".

arXiv 2404.00498: a first layer of 2x2 filters that whiten patches, and three blocks of two 3x3 convolutions.
"""

from __future__ import annotations

from typing import Any

from alpha import Tensor
from alpha import functions as F
from alpha.nn import init
from alpha.nn.activation import GELU
from alpha.nn.arguments import positive
from alpha.nn.conv import Conv2d
from alpha.nn.fusion import conv_bn
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.nn.pooling import MaxPool2d
from alpha.nn.shape import Flatten

_LOGIT_SCALE = 1 / 9
_WHITENING = 2  # the side of the first layer's filters


class AirbenchBlock(Module):
    """gelu(bn2(conv2(gelu(bn1(pool(conv1(x))))))), two 3x3 convolutions that begin as identities."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs)
        self.pool = MaxPool2d(2)
        self.bn1 = _unscaled_norm(outputs)
        self.conv2 = _convolution(outputs, outputs)
        self.bn2 = _unscaled_norm(outputs)
        self.activation = GELU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, inputs) to (N, H // 2, W // 2, outputs)."""
        x = self.activation(self.bn1(self.pool(self.conv1(x))))
        return self.activation(conv_bn(self.conv2, self.bn2, x))  # type: ignore[no-any-return]


class Airbench(Module):
    """Images (N, H, W, 3) of 31 x 31 pixels or more to logits (N, num_classes).

    ``whiten`` sets the first layer's filters, which do not train; its bias does. BatchNorm has no scale: its weight
    stays 1. A map of the last block is max-pooled whole 3x3, and the logits are a ninth of the linear layer's result.
    """

    def __init__(self, num_classes: int, base_width: int) -> None:
        super().__init__()
        first, other = base_width, 4 * base_width
        self.whitening = Conv2d(3, 2 * 3 * _WHITENING**2, _WHITENING)
        self.whitening.weight.requires_grad_(False)
        assert self.whitening.bias is not None
        init.zeros_(self.whitening.bias)
        self.activation = GELU()
        self.block1 = AirbenchBlock(self.whitening.out_channels, first)
        self.block2 = AirbenchBlock(first, other)
        self.block3 = AirbenchBlock(other, other)
        self.pool = MaxPool2d(3)
        self.flatten = Flatten()
        self.fc = Linear(other, num_classes, bias=False)

    def whiten(self, images: Any, eps: float = 5e-4) -> None:
        """Sets the first layer's filters so that they whiten these images' patches: see ``init.whiten_patches_``."""
        init.whiten_patches_(self.whitening.weight, images, eps)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, 3) to (N, num_classes)."""
        x = self.activation(self.whitening(x))
        x = self.block3(self.block2(self.block1(x)))
        return F.mul(self.fc(self.flatten(self.pool(x))), _LOGIT_SCALE)


def airbench(num_classes: int = 10, *, base_width: int = 64) -> Airbench:
    """Jordan's network for images of 32 x 32; at 10 classes and width 64 it has 1,972,792 parameters.

    Call its ``whiten`` with some thousand training images before training.

    Args:
        num_classes: length of the result's last axis.
        base_width: channels of the first block; the others have 4 times as many.
    """
    return Airbench(positive(num_classes, "num_classes", "airbench"), positive(base_width, "base_width", "airbench"))


def _convolution(inputs: int, outputs: int) -> Conv2d:
    """3x3 without a bias; as many filters as there are inputs begin as identities."""
    layer = Conv2d(inputs, outputs, 3, padding=1, bias=False)
    init.dirac_(layer.weight.detach()[:inputs])
    return layer


def _unscaled_norm(channels: int) -> BatchNorm2d:
    layer = BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    assert layer.weight is not None
    layer.weight.requires_grad_(False)
    return layer
