"""SENet50: squeeze and excitation, Hu et al., arXiv 1709.01507, in the form that Dragon-Alpha 1.2 has it.

Unlike that paper's network it has LeakyReLU, no max-pool, a 3x3 convolution in the shortcuts that have a stride, and
two linear layers with dropout before each. torchvision has no such network.
"""

from __future__ import annotations

from alpha import Tensor
from alpha.nn.activation import LeakyReLU, Sigmoid
from alpha.nn.arguments import choice, positive
from alpha.nn.containers import Sequential
from alpha.nn.conv import Conv2d
from alpha.nn.dropout import Dropout
from alpha.nn.fusion import conv_bn, conv_bn_waiting
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.nn.pooling import AdaptiveAvgPool2d
from alpha.nn.shape import Flatten

_BLOCKS = (3, 4, 6, 3)
_EXPANSION, _REDUCTION = 4, 16
"""Channels of a block's result in units of those within it; and of those that the squeezing convolution makes of it."""
_STEMS = {"3x3": (3, 1, 1), "7x7": (7, 2, 3)}
"""Filter, stride and padding of the first convolution."""


class SEBlock(Module):
    """Convolutions 1x1, 3x3 and 1x1, their channels times factors made of their means, added to the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = _EXPANSION * width
        self.conv1 = Conv2d(inputs, width, 1, bias=False)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = BatchNorm2d(width)
        self.conv3 = Conv2d(width, outputs, 1, bias=False)
        self.bn3 = BatchNorm2d(outputs)
        self.downsample: Sequential | None = None
        if stride != 1 or inputs != outputs:
            halving = [] if stride == 1 else [Conv2d(inputs, inputs, 3, stride, 1, bias=False), LeakyReLU()]
            self.downsample = Sequential(*halving, Conv2d(inputs, outputs, 1, bias=False), BatchNorm2d(outputs))
        self.se = Sequential(
            AdaptiveAvgPool2d(1),
            Conv2d(outputs, max(1, outputs // _REDUCTION), 1, bias=False),
            LeakyReLU(),
            Conv2d(max(1, outputs // _REDUCTION), outputs, 1, bias=False),
            Sigmoid(),
        )
        self.act = LeakyReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inputs`` channels to images of four times ``width``."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = conv_bn_waiting(self.conv1, self.bn1, x, activation="leaky_relu")
        y = conv_bn_waiting(self.conv2, self.bn2, y, activation="leaky_relu")
        y = conv_bn(self.conv3, self.bn3, y)
        return self.act(y * self.se(y) + shortcut)  # type: ignore[no-any-return]


class SENet(Module):
    """Images (N, H, W, 3) to logits (N, num_classes)."""

    def __init__(self, num_classes: int, base_width: int, dropout: float, stem: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv1 = Conv2d(3, base_width, *stem, bias=False)
        self.bn1 = BatchNorm2d(base_width)
        stages, inputs = [], base_width
        for place, count in enumerate(_BLOCKS):
            width = base_width * 2**place
            first, inputs = SEBlock(inputs, width, 2), _EXPANSION * width
            stages.append(Sequential(first, *(SEBlock(inputs, width, 1) for _ in range(count - 1))))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = AdaptiveAvgPool2d(1)
        self.flatten = Flatten()
        hidden = 8 * base_width
        self.fc = Sequential(
            Dropout(dropout), Linear(inputs, hidden), LeakyReLU(), Dropout(dropout), Linear(hidden, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, 3) to (N, num_classes)."""
        x = conv_bn(self.conv1, self.bn1, x, activation="leaky_relu")
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.avgpool(x)))  # type: ignore[no-any-return]


def senet50(num_classes: int = 10, *, base_width: int = 64, dropout: float = 0.1, stem: str = "3x3") -> SENet:
    """SENet50.

    Args:
        num_classes: length of the result's last axis.
        base_width: channels of the first convolution; the stages have 4, 8, 16 and 32 times as many.
        dropout: before both linear layers.
        stem: the first convolution, ``"3x3"`` (stride 1, for images of 32 x 32) or ``"7x7"`` (stride 2).
    """
    positive(num_classes, "num_classes", "senet50")
    positive(base_width, "base_width", "senet50")
    return SENet(num_classes, base_width, dropout, _STEMS[choice(stem, tuple(_STEMS), "stem", "senet50")])
