"""Networks: ResNet18, ResNet34, VGG16, VGG19, and weights from and to PyTorch."""

from __future__ import annotations

from nn.models.resnet import ResNet, resnet18, resnet34
from nn.models.torch_weights import from_torch, to_torch
from nn.models.vgg import VGG, vgg16, vgg19

__all__ = ["VGG", "ResNet", "from_torch", "resnet18", "resnet34", "to_torch", "vgg16", "vgg19"]
