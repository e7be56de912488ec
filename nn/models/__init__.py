"""Networks: ResNet18, ResNet34, VGG16, VGG19 with weights from and to PyTorch; DeepLabSmall for pixels; DCGAN; MLP and
what pre-trains it: RBMs, DBN, denoising autoencoders."""

from __future__ import annotations

from nn.models.autoencoder import DenoisingAutoencoder, StackedDenoisingAutoencoder
from nn.models.conv_rbm import ConvRBM
from nn.models.dbn import DBN
from nn.models.dcgan import DCGAN, DCGANDiscriminator, DCGANGenerator
from nn.models.deeplab import DeepLabSmall, deeplab_small
from nn.models.mlp import MLP
from nn.models.rbm import RBM
from nn.models.resnet import ResNet, resnet18, resnet34
from nn.models.torch_weights import from_torch, to_torch
from nn.models.vgg import VGG, vgg16, vgg19

__all__ = [
    "DBN",
    "DCGAN",
    "MLP",
    "RBM",
    "VGG",
    "ConvRBM",
    "DCGANDiscriminator",
    "DCGANGenerator",
    "DeepLabSmall",
    "DenoisingAutoencoder",
    "ResNet",
    "StackedDenoisingAutoencoder",
    "deeplab_small",
    "from_torch",
    "resnet18",
    "resnet34",
    "to_torch",
    "vgg16",
    "vgg19",
]
