"""Networks: ResNet18, ResNet34, VGG16, VGG19 with weights from and to PyTorch; SENet50; Airbench, which trains in a few
epochs; DeepLabSmall for pixels; DCGAN; MLP and what pre-trains it: RBMs, DBN, denoising autoencoders."""

from __future__ import annotations

from alpha.nn.models.airbench import Airbench, airbench
from alpha.nn.models.autoencoder import DenoisingAutoencoder, StackedDenoisingAutoencoder
from alpha.nn.models.conv_rbm import ConvRBM
from alpha.nn.models.dbn import DBN
from alpha.nn.models.dcgan import DCGAN, DCGANDiscriminator, DCGANGenerator
from alpha.nn.models.deeplab import DeepLabSmall, deeplab_small
from alpha.nn.models.mlp import MLP
from alpha.nn.models.rbm import RBM
from alpha.nn.models.resnet import ResNet, resnet18, resnet34
from alpha.nn.models.senet import SENet, senet50
from alpha.nn.models.torch_weights import from_torch, to_torch
from alpha.nn.models.vgg import VGG, vgg16, vgg19

__all__ = [
    "DBN",
    "DCGAN",
    "MLP",
    "RBM",
    "VGG",
    "Airbench",
    "ConvRBM",
    "DCGANDiscriminator",
    "DCGANGenerator",
    "DeepLabSmall",
    "DenoisingAutoencoder",
    "ResNet",
    "SENet",
    "StackedDenoisingAutoencoder",
    "airbench",
    "deeplab_small",
    "from_torch",
    "resnet18",
    "resnet34",
    "senet50",
    "to_torch",
    "vgg16",
    "vgg19",
]
