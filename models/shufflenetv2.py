"""ShuffleNetV2 (Ma et al., arXiv 1807.11164) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence

from alpha import Tensor, nn
from alpha import functions as F
from alpha.errors import ArgumentError, described
from alpha.models.parts import ImageNetwork, Layers
from alpha.models.registry import builder


def _pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    """A 1x1 convolution, a BatchNorm2d and a ReLU."""
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    """A depthwise 3x3 convolution and a BatchNorm2d."""
    conv = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    return [conv, nn.BatchNorm2d(channels)]


class InvertedResidual(ImageNetwork):
    """At stride 1 half of the channels pass as they are, at other strides all go through both branches; then the
    channels of the two halves take turns."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        half = oup // 2
        if stride not in (1, 2, 3) or (stride == 1 and inp != 2 * half):
            raise ArgumentError(
                "[InvertedResidual] expected a stride from 1 to 3, with inp equal to oup and even at stride 1, got "
                f"inp={inp}, oup={oup} and stride={described(stride)}"
            )
        self.stride = stride
        through = [] if stride == 1 else [*_depthwise(inp, stride), *_pointwise(inp, half)]
        self.branch1 = nn.Sequential(*through)
        inputs = half if stride == 1 else inp
        self.branch2 = nn.Sequential(*_pointwise(inputs, half), *_depthwise(half, stride), *_pointwise(half, half))

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inp`` channels to images of ``oup``."""
        axis = self._channel_axis(4)
        first, second = F.chunk(x, 2, dim=axis) if self.stride == 1 else (self.branch1(x), x)
        halves = F.stack([first, self.branch2(second)], dim=axis + 1)
        return halves.flatten(axis, axis + 1)


class ShuffleNetV2(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        stages_repeats: blocks of each of the three stages.
        stages_out_channels: channels of the first convolution, of the stages and of the last convolution.
        num_classes: length of the result's last axis.
        inverted_residual: a class in the place of InvertedResidual.
    """

    def __init__(
        self,
        stages_repeats: Sequence[int],
        stages_out_channels: Sequence[int],
        num_classes: int = 1000,
        inverted_residual: Layers = InvertedResidual,
    ) -> None:
        super().__init__()
        if len(stages_repeats) != 3 or len(stages_out_channels) != 5:
            raise ArgumentError(
                "[ShuffleNetV2] expected three stages_repeats and five stages_out_channels, got "
                f"{described(stages_repeats)} and {described(stages_out_channels)}"
            )
        first, *widths, last = stages_out_channels
        conv = nn.Conv2d(3, first, 3, 2, 1, bias=False)
        self.conv1 = nn.Sequential(conv, nn.BatchNorm2d(first), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, inputs = [], first
        for outputs, count in zip(widths, stages_repeats, strict=True):
            later = [inverted_residual(outputs, outputs, 1) for _ in range(count - 1)]
            stages.append(nn.Sequential(inverted_residual(inputs, outputs, 2), *later))
            inputs = outputs
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = nn.Sequential(*_pointwise(inputs, last))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(F.adaptive_avg_pool2d(self.conv5(x), 1, layout=self.layout).flatten(1))  # type: ignore[no-any-return]


shufflenet_v2_x0_5 = builder("shufflenet_v2_x0_5", ShuffleNetV2, (4, 8, 4), (24, 48, 96, 192, 1024))
shufflenet_v2_x1_0 = builder("shufflenet_v2_x1_0", ShuffleNetV2, (4, 8, 4), (24, 116, 232, 464, 1024))
shufflenet_v2_x1_5 = builder("shufflenet_v2_x1_5", ShuffleNetV2, (4, 8, 4), (24, 176, 352, 704, 1024))
shufflenet_v2_x2_0 = builder("shufflenet_v2_x2_0", ShuffleNetV2, (4, 8, 4), (24, 244, 488, 976, 2048))
