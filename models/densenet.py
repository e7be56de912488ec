"""DenseNet (Huang et al., arXiv 1608.06993) with torchvision's names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from alpha import Tensor, nn
from alpha import functions as F
from alpha.models.parts import ImageNetwork, draw_weights
from alpha.models.registry import builder
from alpha.nn.arguments import probability
from alpha.nn.fusion import run

_OLD_NAME = re.compile(r"(.*denselayer\d+\.(?:norm|conv))\.([12]\..*)")


class _DenseLayer(ImageNetwork):
    """``growth_rate`` new channels of all maps before it: a 1x1 and a 3x3 convolution, each behind bn and ReLU."""

    def __init__(self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float) -> None:
        super().__init__()
        inner = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(inner, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = probability(drop_rate, "drop_rate", "DenseNet")

    def forward(self, maps: Tensor | Sequence[Tensor]) -> Tensor:
        """All maps before this layer, or one tensor that holds them, to the new ones."""
        x = maps if isinstance(maps, Tensor) else self._cat(maps)
        layers = (self.norm1, self.relu1, self.conv1, self.norm2, self.relu2, self.conv2)
        new: Tensor = run(layers, x)
        return F.dropout(new, self.drop_rate, self.training) if self.drop_rate else new


class _DenseBlock(nn.ModuleDict, ImageNetwork):
    """Layers each of which sees the maps of all before it."""

    def __init__(
        self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int, drop_rate: float
    ) -> None:
        super().__init__()
        for place in range(num_layers):
            inputs = num_input_features + place * growth_rate
            self[f"denselayer{place + 1}"] = _DenseLayer(inputs, growth_rate, bn_size, drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Maps to these and all new ones."""
        for layer in self.values():
            x = self._cat([x, layer(x)])
        return x


class _Transition(nn.Sequential):
    """Half of the channels, at half of the height and the width."""

    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__(
            {
                "norm": nn.BatchNorm2d(num_input_features),
                "relu": nn.ReLU(inplace=True),
                "conv": nn.Conv2d(num_input_features, num_output_features, 1, bias=False),
                "pool": nn.AvgPool2d(2, 2),
            }
        )


class DenseNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        growth_rate: channels that each layer adds.
        block_config: layers of each of the blocks.
        num_init_features: channels of the first convolution.
        bn_size: channels within a layer, in units of ``growth_rate``.
        drop_rate: dropout behind each layer.
        num_classes: length of the result's last axis.
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        channels = num_init_features
        layers: dict[str, nn.Module] = {
            "conv0": nn.Conv2d(3, channels, 7, 2, 3, bias=False),
            "norm0": nn.BatchNorm2d(channels),
            "relu0": nn.ReLU(inplace=True),
            "pool0": nn.MaxPool2d(3, 2, 1),
        }
        for place, count in enumerate(block_config, 1):
            layers[f"denseblock{place}"] = _DenseBlock(count, channels, bn_size, growth_rate, drop_rate)
            channels += count * growth_rate
            if place < len(block_config):
                layers[f"transition{place}"] = _Transition(channels, channels // 2)
                channels //= 2
        self.features = nn.Sequential({**layers, "norm5": nn.BatchNorm2d(channels)})
        self.classifier = nn.Linear(channels, num_classes)
        self.flattened_maps = self._flattened_maps(classifier=(1, 1))
        draw_weights(self, nn.init.kaiming_normal_)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        maps = F.relu(self.features(x))
        pooled = F.adaptive_avg_pool2d(maps, (1, 1), layout=self.layout)
        return self.classifier(pooled.flatten(1))  # type: ignore[no-any-return]

    def current_name(self, name: str) -> str:
        """The present name of an entry of torchvision's published files, which say ``norm.1`` for ``norm1``."""
        return _OLD_NAME.sub(r"\1\2", name)


densenet121 = builder("densenet121", DenseNet, 32, (6, 12, 24, 16), 64)
densenet161 = builder("densenet161", DenseNet, 48, (6, 12, 36, 24), 96)
densenet169 = builder("densenet169", DenseNet, 32, (6, 12, 32, 32), 64)
densenet201 = builder("densenet201", DenseNet, 32, (6, 12, 48, 32), 64)
