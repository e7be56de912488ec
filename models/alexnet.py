"""AlexNet in the form of Krizhevsky, arXiv 1404.5997, with torchvision's names."""

from __future__ import annotations

from alpha import Tensor, nn
from alpha.models.parts import ImageNetwork
from alpha.models.registry import builder


class AlexNet(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        num_classes: length of the result's last axis.
        dropout: before the two hidden linear layers.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        for inputs, outputs in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )
        self.flattened_maps = self._flattened_maps(classifier_1=(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]


alexnet = builder("alexnet", AlexNet)
