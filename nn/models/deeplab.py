"""DeepLabSmall: a small network of atrous convolutions that tells the class of every pixel.

Chen et al., "Rethinking atrous convolution for semantic image segmentation" (DeepLab v3), arXiv 1706.05587.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpha import Tensor
from alpha import functions as F
from alpha.errors import ArgumentError
from alpha.nn.arguments import positive
from alpha.nn.containers import Sequential
from alpha.nn.conv import Conv2d
from alpha.nn.models.conv_block import ConvBlock
from alpha.nn.models.resnet import BasicBlock
from alpha.nn.module import Module
from alpha.nn.pooling import AdaptiveAvgPool2d


class ASPP(Module):
    """Atrous spatial pyramid pooling: maps (N, H, W, inputs) seen at several scales, to (N, H, W, outputs).

    Side by side a 1x1 convolution, a 3x3 one of each dilation (padded by it), and the mean over the whole map behind a
    1x1 convolution; their results are joined and projected by a last 1x1 convolution. BatchNorm and ReLU behind each.

    Where a map is not much larger than a dilation most taps lie in the padding: an axis of length L keeps
    L + 2 max(0, L - d) of its 3 L products. ConvV2 leaves the others out, so that of nine taps it multiplies

    ========  =====  =====  =====
    map       d = 6   d=12   d=18
    ========  =====  =====  =====
    16 x 16    56 %   25 %   11 %
    24 x 24    69 %   44 %   25 %
    32 x 32    77 %   56 %   39 %
    64 x 64    88 %   77 %   66 %
    ========  =====  =====  =====

    At 11 % the centre alone is left, and the branch is a 1x1 convolution.
    """

    def __init__(self, inputs: int, outputs: int, dilations: Sequence[int] = (6, 12, 18)) -> None:
        super().__init__()
        self.dilations = _check_dilations(dilations)
        branches = [_conv_block(inputs, outputs, 3, dilation=dilation) for dilation in self.dilations]
        self.branches = Sequential(_conv_block(inputs, outputs, 1), *branches)
        self.pool = AdaptiveAvgPool2d(1)
        self.pooled = _conv_block(inputs, outputs, 1)
        self.project = _conv_block((len(branches) + 2) * outputs, outputs, 1)
        self.layout = self.pool.layout

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, inputs) to (N, H, W, outputs)."""
        results = [branch(x) for branch in self.branches]
        mean: Tensor = self.pooled(self.pool(x))
        results.append(F.broadcast_to(mean, results[0].shape))
        return self.project(F.concat(results, 1 if self.layout == "NCHW" else 3))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dilations={self.dilations}"


class DeepLabSmall(Module):
    """Images (N, H, W, in_channels) of any size to logits (N, H, W, num_classes).

    A convolution of stride 2 and four residual blocks make maps of a quarter of height and width (rounded up), with
    4 * base_width channels; ASPP looks at them at several scales; a 1x1 convolution makes logits, that are resized
    bilinearly to the image's size.

    In training every BatchNorm needs more than one value per channel, and that of the mean over the map has one per
    image: a batch holds at least two.
    """

    def __init__(
        self, num_classes: int, in_channels: int = 3, base_width: int = 16, dilations: Sequence[int] = (6, 12, 18)
    ) -> None:
        super().__init__()
        narrow, middle, wide = base_width, 2 * base_width, 4 * base_width
        self.stem = _conv_block(in_channels, narrow, 3, stride=2)
        self.blocks = Sequential(
            BasicBlock(narrow, narrow, 1, "relu", 1),
            BasicBlock(narrow, middle, 2, "relu", 1),
            BasicBlock(middle, wide, 1, "relu", 1),
            BasicBlock(wide, wide, 1, "relu", 1),
        )
        self.aspp = ASPP(wide, wide, dilations)
        self.classifier = Conv2d(wide, num_classes, 1)
        self.layout = self.classifier.layout

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, in_channels) to logits (N, H, W, num_classes)."""
        logits = self.classifier(self.aspp(self.blocks(self.stem(x))))
        size = x.shape[2:] if self.layout == "NCHW" else x.shape[1:3]
        return F.interpolate(logits, size, mode="bilinear", layout=self.layout)


def deeplab_small(
    num_classes: int, in_channels: int = 3, base_width: int = 16, dilations: Sequence[int] = (6, 12, 18)
) -> DeepLabSmall:
    """DeepLabSmall; at 11 classes it has 292,123 parameters.

    Args:
        num_classes: length of the logits' last axis, the background's class included.
        in_channels: channels of the images.
        base_width: channels of the first block; the others have twice and four times as many.
        dilations: of ASPP's 3x3 convolutions, in pixels of maps at a quarter of the image's size.
    """
    for value, name in ((num_classes, "num_classes"), (in_channels, "in_channels"), (base_width, "base_width")):
        positive(value, name, "deeplab_small")
    return DeepLabSmall(num_classes, in_channels, base_width, dilations)


def _conv_block(inputs: int, outputs: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> ConvBlock:
    """A convolution that keeps height and width at stride 1, BatchNorm and ReLU."""
    padding = kernel_size // 2 * dilation
    return ConvBlock(Conv2d(inputs, outputs, kernel_size, stride, padding, dilation, bias=False))


def _check_dilations(dilations: Sequence[int]) -> tuple[int, ...]:
    """The dilations as a tuple; ArgumentError unless there is at least one, each >= 1."""
    if not isinstance(dilations, list | tuple) or not dilations:
        raise ArgumentError(f"[ASPP] expected dilations as a list of at least one, got {dilations!r}")
    return tuple(positive(dilation, "dilations", "ASPP") for dilation in dilations)
