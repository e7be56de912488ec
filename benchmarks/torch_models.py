"""The same four networks in PyTorch, with the same names, as an expert would write them: oracle and opponent.

Weights carry both ways: ``nn.models.to_torch(net)`` fits the twin, ``from_torch(twin.state_dict(), net)`` ours.
Activations work in place, which saves PyTorch a pass over memory each.
"""

from __future__ import annotations

from typing import Any

from alpha.errors import ArgumentError

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ImportError(
        '[torch_models] expected PyTorch to compare with, got none: pip install "dragon-alpha[compare]"'
    ) from error

_PAPER_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (4, 4, 6, 3)}
_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
_HIDDEN = {  # widths of the hidden linear layers by the paper's head and network, in units of the base width
    "cifar10": {"resnet18": (2,), "resnet34": (4,), "vgg16": (4, 2), "vgg19": (4, 2)},
    "ilsvrc2012": {"resnet18": (8,), "resnet34": (8,), "vgg16": (64, 32), "vgg19": (64, 32)},
}
_IMAGE_SIZES = {"cifar10": 32, "ilsvrc2012": 128}


def torch_twin(
    name: str,
    style: str = "paper",
    num_classes: int = 10,
    dropout: float | None = None,
    *,
    base_width: int = 64,
    stem: str = "7x7",
    image_size: int | None = None,
    head: str = "cifar10",
) -> nn.Module:
    """The network as a torch.nn.Module.

    Args:
        name: resnet18, resnet34, vgg16 or vgg19.
        style: ``"paper"`` or ``"torchvision"``.
        num_classes: length of the result's last axis.
        dropout: None for the style's own, 0 for none.
        base_width: channels of the first stage.
        stem: of torchvision's ResNets, ``"7x7"`` or ``"3x3"``.
        image_size: side of the images of the paper style's VGGs; None for the head's.
        head: of the paper style, ``"cifar10"`` or ``"ilsvrc2012"``.
    """
    known = style in ("paper", "torchvision") and name in (*_BLOCKS, *_CONVOLUTIONS)
    if not known or stem not in ("7x7", "3x3") or head not in _HIDDEN:
        raise ArgumentError(
            "[torch_twin] expected resnet18, resnet34, vgg16 or vgg19 in style paper or torchvision, with stem 7x7 or "
            f"3x3 and head cifar10 or ilsvrc2012, got {name!r} in style {style!r} with stem {stem!r} and head {head!r}"
        )
    paper = style == "paper"
    hidden = [base_width * width for width in _HIDDEN[head][name]]
    if name in _BLOCKS:
        return ResNet(name, paper, num_classes, hidden[0], base_width, 0.1 if dropout is None else dropout, stem)
    p = (0.1 if paper else 0.5) if dropout is None else dropout
    maps = (image_size or _IMAGE_SIZES[head]) // 32 if paper else 7
    widths = [8 * base_width * maps**2, *(hidden if paper else [64 * base_width] * 2), num_classes]
    return VGG(_features(name, paper, base_width), _classifier(paper, widths, p), paper)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, paper: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.activation = _activation(paper)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            k = 3 if paper else 1
            conv = nn.Conv2d(inputs, outputs, k, stride, k // 2, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, inputs, H, W) to (N, outputs, OH, OW)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.activation(self.bn1(self.conv1(x)))
        return self.activation(self.bn2(self.conv2(y)).add_(shortcut))


class ResNet(nn.Module):
    """Images (N, 3, H, W) to logits."""

    def __init__(
        self, name: str, paper: bool, num_classes: int, hidden: int, base_width: int, p: float, stem: str
    ) -> None:
        super().__init__()
        widths = [base_width * 2**stage for stage in range(4)]
        blocks = (_PAPER_BLOCKS if paper else _BLOCKS)[name]
        small = not paper and stem == "3x3"
        if small:
            self.conv1 = nn.Conv2d(3, base_width, 3, 1, 1, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, base_width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base_width)
        self.activation = _activation(paper)
        self.maxpool = nn.Identity() if paper or small else nn.MaxPool2d(3, 2, 1)
        inputs = base_width
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            first = BasicBlock(inputs, width, 2 if stage else 1, paper)
            rest = [BasicBlock(width, width, 1, paper) for _ in range(count - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
            inputs = width
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = (
            nn.Sequential(
                nn.Dropout(p),
                nn.Linear(inputs, hidden),
                _activation(paper),
                nn.Dropout(p),
                nn.Linear(hidden, num_classes),
            )
            if paper
            else nn.Linear(inputs, num_classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, num_classes)."""
        x = self.maxpool(self.activation(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    """Images (N, 3, H, W) to logits."""

    def __init__(self, features: nn.Module, classifier: nn.Module, paper: bool) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.Identity() if paper else nn.AdaptiveAvgPool2d(7)
        self.classifier = classifier

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, num_classes)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def _features(name: str, paper: bool, base_width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for block, count in enumerate(_CONVOLUTIONS[name]):
        outputs = base_width * min(2**block, 8)
        for index in range(count):
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not paper))
            if paper and index == count - 1:
                layers.append(nn.BatchNorm2d(outputs))
            layers.append(_activation(paper))
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _classifier(paper: bool, widths: list[int], p: float) -> nn.Sequential:
    """Three linear layers, from the first of four widths to the last."""
    inputs, first, second, outputs = widths
    return nn.Sequential(
        nn.Linear(inputs, first),
        _activation(paper),
        nn.Dropout(p),
        nn.Linear(first, second),
        _activation(paper),
        nn.Dropout(p),
        nn.Linear(second, outputs),
    )


def _activation(paper: bool) -> Any:
    return nn.LeakyReLU(0.01, inplace=True) if paper else nn.ReLU(inplace=True)
