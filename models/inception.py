"""Inception v3 (Szegedy et al., arXiv 1512.00567) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from alpha import Tensor, nn
from alpha import functions as F
from alpha.errors import ArgumentError
from alpha.models.googlenet import BasicConv2d, renormalised
from alpha.models.parts import ImageNetwork, Layers, draw_weights
from alpha.models.registry import builder

_ROW: dict[str, Any] = {"kernel_size": (1, 7), "padding": (0, 3)}
_COLUMN: dict[str, Any] = {"kernel_size": (7, 1), "padding": (3, 0)}
"""Filters of one row and of one column, which keep the maps' size."""


class InceptionOutputs(NamedTuple):
    """The logits in training, beside those of the auxiliary classifier."""

    logits: Tensor
    aux_logits: Tensor | None


class _Block(ImageNetwork):
    """Base of the blocks: what several of them do."""

    def _pooled(self, x: Tensor) -> Tensor:
        """Means of 3x3 pixels, the maps' size kept."""
        return F.avg_pool2d(x, 3, 1, 1, layout=self.layout)

    def _halved(self, x: Tensor) -> Tensor:
        """The largest of 3x3 pixels, of every second place."""
        found: Tensor = F.max_pool2d(x, 3, 2, layout=self.layout)
        return found


class InceptionA(_Block):
    """Branches 1x1, 5x5, 3x3 twice, and a mean."""

    def __init__(self, in_channels: int, pool_features: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1x1 = conv(in_channels, 64, kernel_size=1)
        self.branch5x5_1 = conv(in_channels, 48, kernel_size=1)
        self.branch5x5_2 = conv(48, 64, kernel_size=5, padding=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, padding=1)
        self.branch_pool = conv(in_channels, pool_features, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same size."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        five = self.branch5x5_2(self.branch5x5_1(x))
        return self._cat([self.branch1x1(x), five, double, self.branch_pool(self._pooled(x))])


class InceptionB(_Block):
    """Branches 3x3, 3x3 twice and a maximum, at half of the size."""

    def __init__(self, in_channels: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3 = conv(in_channels, 384, kernel_size=3, stride=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of half the size."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return self._cat([self.branch3x3(x), double, self._halved(x)])


class InceptionC(_Block):
    """Branches 1x1, a row and a column of 7, two of each, and a mean."""

    def __init__(self, in_channels: int, channels_7x7: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv, width = conv_block or BasicConv2d, channels_7x7
        self.branch1x1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7_1 = conv(in_channels, width, kernel_size=1)
        self.branch7x7_2 = conv(width, width, **_ROW)
        self.branch7x7_3 = conv(width, 192, **_COLUMN)
        self.branch7x7dbl_1 = conv(in_channels, width, kernel_size=1)
        self.branch7x7dbl_2 = conv(width, width, **_COLUMN)
        self.branch7x7dbl_3 = conv(width, width, **_ROW)
        self.branch7x7dbl_4 = conv(width, width, **_COLUMN)
        self.branch7x7dbl_5 = conv(width, 192, **_ROW)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same size."""
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return self._cat([self.branch1x1(x), single, double, self.branch_pool(self._pooled(x))])


class InceptionD(_Block):
    """Branches 3x3, a row, a column and 3x3, and a maximum, at half of the size."""

    def __init__(self, in_channels: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch3x3_2 = conv(192, 320, kernel_size=3, stride=2)
        self.branch7x7x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7x3_2 = conv(192, 192, **_ROW)
        self.branch7x7x3_3 = conv(192, 192, **_COLUMN)
        self.branch7x7x3_4 = conv(192, 192, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of half the size."""
        seven = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        return self._cat([self.branch3x3_2(self.branch3x3_1(x)), self.branch7x7x3_4(seven), self._halved(x)])


class InceptionE(_Block):
    """Branches 1x1, a row beside a column of 3, the same behind a 3x3, and a mean."""

    def __init__(self, in_channels: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        row, column = {"kernel_size": (1, 3), "padding": (0, 1)}, {"kernel_size": (3, 1), "padding": (1, 0)}
        self.branch1x1 = conv(in_channels, 320, kernel_size=1)
        self.branch3x3_1 = conv(in_channels, 384, kernel_size=1)
        self.branch3x3_2a = conv(384, 384, **row)
        self.branch3x3_2b = conv(384, 384, **column)
        self.branch3x3dbl_1 = conv(in_channels, 448, kernel_size=1)
        self.branch3x3dbl_2 = conv(448, 384, kernel_size=3, padding=1)
        self.branch3x3dbl_3a = conv(384, 384, **row)
        self.branch3x3dbl_3b = conv(384, 384, **column)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same size."""
        single, double = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = [self.branch1x1(x), self.branch3x3_2a(single), self.branch3x3_2b(single)]
        branches += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), self.branch_pool(self._pooled(x))]
        return self._cat(branches)


class InceptionAux(ImageNetwork):
    """A classifier of maps in the middle of the network, whose loss helps to train what lies before it."""

    def __init__(self, in_channels: int, num_classes: int, conv_block: Layers | None = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.conv0 = conv(in_channels, 128, kernel_size=1)
        self.conv1 = conv(128, 768, kernel_size=5)
        self.fc = nn.Linear(768, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Maps of at least 17x17 pixels to logits."""
        x = self.conv1(self.conv0(F.avg_pool2d(x, 5, 3, layout=self.layout)))
        return self.fc(F.adaptive_avg_pool2d(x, 1, layout=self.layout).flatten(1))  # type: ignore[no-any-return]


class Inception3(ImageNetwork):
    """Images of 3 channels, 299x299 pixels as a rule, to logits (N, num_classes), in training with auxiliary ones.

    Args:
        num_classes: length of the logits' last axis.
        aux_logits: whether there is an auxiliary classifier, which runs in training; the result is then
            InceptionOutputs.
        transform_input: whether pixels come normalised by ImageNet's mean and deviation, and are to be normalised by
            1/2 and 1/2.
        inception_blocks: classes in the place of BasicConv2d, of InceptionA to InceptionE and of InceptionAux.
        init_weights: whether the weights are drawn as torchvision draws them, or as each layer does.
        dropout: before the last linear layer.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        inception_blocks: Sequence[Layers] | None = None,
        init_weights: bool | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        usual: Sequence[Layers] = (
            BasicConv2d,
            InceptionA,
            InceptionB,
            InceptionC,
            InceptionD,
            InceptionE,
            InceptionAux,
        )
        if len(usual if inception_blocks is None else inception_blocks) != len(usual):
            raise ArgumentError("[Inception3] expected inception_blocks as seven classes, got another number")
        conv, a, b, c, d, e, aux = usual if inception_blocks is None else inception_blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1 = conv(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(3, 2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = a(192, 32), a(256, 64), a(288, 64)
        self.Mixed_6a = b(288)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = (c(768, width) for width in (128, 160, 160, 192))
        self.AuxLogits = aux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = d(768), e(1280), e(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        self.flattened_maps = self._flattened_maps(fc=(1, 1))
        if init_weights is None or init_weights:
            draw = partial(nn.init.trunc_normal_, std=0.1)
            draw_weights(self, draw, draw, zero_linear_bias=False)
            if isinstance(self.AuxLogits, InceptionAux):
                nn.init.trunc_normal_(self.AuxLogits.fc.weight, std=0.001)

    def forward(self, x: Tensor) -> Any:
        """Images to logits; in training, with an auxiliary classifier, to InceptionOutputs."""
        if self.transform_input:
            x = renormalised(x, self.layout)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        auxiliary = self.AuxLogits(x) if self.training and self.AuxLogits is not None else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        logits = self.fc(self.dropout(self.avgpool(x)).flatten(1))
        return InceptionOutputs(logits, auxiliary) if self.training and self.aux_logits else logits


inception_v3 = builder("inception_v3", Inception3)
