"""ResNet (He et al., arXiv 1512.03385), ResNeXt (Xie et al., arXiv 1611.05431) and wide ResNets (Zagoruyko and
Komodakis, arXiv 1605.07146), with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence

from alpha import Tensor, nn
from alpha.errors import ArgumentError, described
from alpha.models.parts import ImageNetwork, Layers, draw_weights, fan_out_normal
from alpha.models.registry import builder
from alpha.nn.fusion import conv_bn_activation, conv_bn_activation_waiting
from alpha.nn.shortcuts import conv_bn_activation_shortcut, shortcut_of


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3x3 convolution without bias whose padding keeps the size at stride 1."""
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A 1x1 convolution without bias."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), two 3x3 convolutions."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Layers | None = None,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64 or dilation > 1:
            raise ArgumentError(
                f"[BasicBlock] expected groups=1, base_width=64 and dilation=1, got groups={groups}, "
                f"base_width={base_width} and dilation={dilation}: Bottleneck has them"
            )
        norm_layer = norm_layer or nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inplanes`` channels to images of ``planes``."""
        shortcut = shortcut_of(self.downsample, self.bn2, x)
        y = conv_bn_activation_waiting(self.conv1, self.bn1, self.relu, x)
        return conv_bn_activation_shortcut(self.conv2, self.bn2, self.relu, y, shortcut)


class Bottleneck(nn.Module):
    """Convolutions 1x1, 3x3 (which has the stride) and 1x1, added to the shortcut; a quarter of the channels within."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Layers | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width, outputs = int(planes * (base_width / 64)) * groups, planes * self.expansion
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, outputs)
        self.bn3 = norm_layer(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Images of ``inplanes`` channels to images of four times ``planes``."""
        shortcut = shortcut_of(self.downsample, self.bn3, x)
        y = conv_bn_activation_waiting(self.conv1, self.bn1, self.relu, x)
        y = conv_bn_activation_waiting(self.conv2, self.bn2, self.relu, y)
        return conv_bn_activation_shortcut(self.conv3, self.bn3, self.relu, y, shortcut)


class ResNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        block: BasicBlock or Bottleneck, or a class with the same arguments.
        layers: blocks of each of the four stages.
        num_classes: length of the result's last axis.
        zero_init_residual: whether each block's last normalisation begins with the weight 0.
        groups: of the Bottlenecks' 3x3 convolutions.
        width_per_group: of the first stage.
        replace_stride_with_dilation: whether the second, third and fourth stage dilate their filters in place of their
            stride.
        norm_layer: makes a normalisation from a number of channels; BatchNorm2d by default.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Layers | None = None,
    ) -> None:
        super().__init__()
        if len(layers) != 4:
            raise ArgumentError(f"[ResNet] expected layers as the blocks of four stages, got {described(layers)}")
        dilated = [False] * 3 if replace_stride_with_dilation is None else list(replace_stride_with_dilation)
        if len(dilated) != 3:
            raise ArgumentError(
                f"[ResNet] expected replace_stride_with_dilation as None or three bools, got {described(dilated)}"
            )
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, 7, 2, 3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        draw_weights(self, fan_out_normal, zero_linear_bias=False)
        if zero_init_residual:
            self._silence_blocks()

    def _make_layer(
        self, block: type[BasicBlock | Bottleneck], planes: int, blocks: int, stride: int = 1, dilate: bool = False
    ) -> nn.Sequential:
        """A stage of blocks, the first of which has the stride, or hands it on as the dilation of those behind."""
        dilation = self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        outputs = planes * block.expansion
        shortcut: nn.Module | None = None
        if stride != 1 or self.inplanes != outputs:
            shortcut = nn.Sequential(conv1x1(self.inplanes, outputs, stride), self._norm_layer(outputs))
        kind = (self.groups, self.base_width)
        stage: list[nn.Module] = [block(self.inplanes, planes, stride, shortcut, *kind, dilation, self._norm_layer)]
        self.inplanes = outputs
        stage += [block(outputs, planes, 1, None, *kind, self.dilation, self._norm_layer) for _ in range(1, blocks)]
        return nn.Sequential(*stage)

    def _silence_blocks(self) -> None:
        """Sets the weight of each block's last normalisation to 0: Goyal et al., arXiv 1706.02677."""
        for module in self.modules():
            last = getattr(module, {Bottleneck: "bn3", BasicBlock: "bn2"}.get(type(module), ""), None)
            if last is not None and last.weight is not None:
                nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        x = self.maxpool(conv_bn_activation(self.conv1, self.bn1, self.relu, x))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]


resnet18 = builder("resnet18", ResNet, BasicBlock, (2, 2, 2, 2))
resnet34 = builder("resnet34", ResNet, BasicBlock, (3, 4, 6, 3))
resnet50 = builder("resnet50", ResNet, Bottleneck, (3, 4, 6, 3))
resnet101 = builder("resnet101", ResNet, Bottleneck, (3, 4, 23, 3))
resnet152 = builder("resnet152", ResNet, Bottleneck, (3, 8, 36, 3))
resnext50_32x4d = builder("resnext50_32x4d", ResNet, Bottleneck, (3, 4, 6, 3), groups=32, width_per_group=4)
resnext101_32x8d = builder("resnext101_32x8d", ResNet, Bottleneck, (3, 4, 23, 3), groups=32, width_per_group=8)
resnext101_64x4d = builder("resnext101_64x4d", ResNet, Bottleneck, (3, 4, 23, 3), groups=64, width_per_group=4)
wide_resnet50_2 = builder("wide_resnet50_2", ResNet, Bottleneck, (3, 4, 6, 3), width_per_group=128)
wide_resnet101_2 = builder("wide_resnet101_2", ResNet, Bottleneck, (3, 4, 23, 3), width_per_group=128)
