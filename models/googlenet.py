"""GoogLeNet (Szegedy et al., arXiv 1409.4842), with batch normalisation and torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import alpha
from alpha import Tensor, nn
from alpha import functions as F
from alpha.errors import ArgumentError
from alpha.models.parts import ImageNetwork, Layers, draw_weights
from alpha.models.registry import builder
from alpha.nn.fusion import conv_bn_activation

_MEANS, _DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Statistics of ImageNet's pixels, by channel."""

_RELU = nn.ReLU(inplace=True)


def renormalised(x: Tensor, layout: str) -> Tensor:
    """Pixels normalised by 1/2 and 1/2, from those normalised by ImageNet's mean and deviation."""
    shape = (1, 3, 1, 1) if layout == "NCHW" else (3,)
    rows = [[d / 0.5 for d in _DEVIATIONS], [(m - 0.5) / 0.5 for m in _MEANS]]
    factors, shifts = (alpha.tensor(row, dtype=x.dtype, device=x.device).reshape(shape) for row in rows)
    return x * factors + shifts


class GoogLeNetOutputs(NamedTuple):
    """The logits in training, beside those of the two auxiliary classifiers."""

    logits: Tensor
    aux_logits2: Tensor | None
    aux_logits1: Tensor | None


class BasicConv2d(nn.Module):
    """A convolution without bias, a BatchNorm2d and a ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return conv_bn_activation(self.conv, self.bn, _RELU, x)


class Inception(ImageNetwork):
    """Four branches side by side: 1x1, two with a 3x3 behind a 1x1, and a max-pool with a 1x1.

    The third branch's filters are 3x3, where the paper has 5x5: torchvision's weights are of this shape.
    """

    def __init__(
        self,
        in_channels: int,
        ch1x1: int,
        ch3x3red: int,
        ch3x3: int,
        ch5x5red: int,
        ch5x5: int,
        pool_proj: int,
        conv_block: Layers | None = None,
    ) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1 = conv(in_channels, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(
            conv(in_channels, ch3x3red, kernel_size=1), conv(ch3x3red, ch3x3, kernel_size=3, padding=1)
        )
        self.branch3 = nn.Sequential(
            conv(in_channels, ch5x5red, kernel_size=1), conv(ch5x5red, ch5x5, kernel_size=3, padding=1)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv(in_channels, pool_proj, kernel_size=1))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the four branches' channels together."""
        return self._cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)])


class InceptionAux(ImageNetwork):
    """A classifier of maps in the middle of the network, whose loss helps to train what lies before it."""

    def __init__(
        self, in_channels: int, num_classes: int, conv_block: Layers | None = None, dropout: float = 0.7
    ) -> None:
        super().__init__()
        self.conv = (conv_block or BasicConv2d)(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)
        self.flattened_maps = self._flattened_maps(fc1=(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Maps to logits."""
        x = self.conv(F.adaptive_avg_pool2d(x, (4, 4), layout=self.layout)).flatten(1)
        return self.fc2(self.dropout(F.relu(self.fc1(x))))  # type: ignore[no-any-return]


class GoogLeNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes), in training with those of the auxiliary classifiers.

    Args:
        num_classes: length of the logits' last axis.
        aux_logits: whether there are auxiliary classifiers, which run in training; its result is then GoogLeNetOutputs.
        transform_input: whether pixels come normalised by ImageNet's mean and deviation, and are to be normalised by
            1/2 and 1/2.
        init_weights: whether the weights are drawn as torchvision draws them, or as each layer does.
        blocks: classes in the place of BasicConv2d, Inception and InceptionAux.
        dropout: before the last linear layer.
        dropout_aux: in the auxiliary classifiers.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
        blocks: Sequence[Layers] | None = None,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:
        super().__init__()
        classes: Sequence[Layers] = (BasicConv2d, Inception, InceptionAux) if blocks is None else blocks
        if len(classes) != 3:
            raise ArgumentError(f"[GoogLeNet] expected blocks as three classes, got {len(classes)}")
        conv, inception, aux = classes
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = conv(64, 64, kernel_size=1)
        self.conv3 = conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception3a = inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = inception(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception4a = inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = inception(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.inception5a = inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = inception(832, 384, 192, 384, 48, 128, 128)
        self.aux1 = aux(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = aux(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        self.flattened_maps = self._flattened_maps(fc=(1, 1))
        if init_weights is None or init_weights:
            draw = partial(nn.init.trunc_normal_, mean=0.0, std=0.01, a=-2, b=2)
            draw_weights(self, draw, draw, zero_linear_bias=False)

    def forward(self, x: Tensor) -> Any:
        """Images to logits; in training, with auxiliary classifiers, to GoogLeNetOutputs."""
        if self.transform_input:
            x = renormalised(x, self.layout)
        x = self.conv3(self.conv2(self.maxpool1(self.conv1(x))))
        x = self.inception3b(self.inception3a(self.maxpool2(x)))
        x = self.inception4a(self.maxpool3(x))
        first = self.aux1(x) if self.training and self.aux1 is not None else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        second = self.aux2(x) if self.training and self.aux2 is not None else None
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        logits = self.fc(self.dropout(self.avgpool(x).flatten(1)))
        return GoogLeNetOutputs(logits, second, first) if self.training and self.aux_logits else logits


googlenet = builder("googlenet", GoogLeNet)
