"""Modules, layers, losses, initialisation, functional forms and models."""

from __future__ import annotations

from nn import functional, init, models, utils
from nn.activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from nn.containers import ModuleDict, ModuleList, Sequential
from nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from nn.dropout import Dropout
from nn.embedding import Embedding
from nn.layer_norm import GroupNorm, InstanceNorm2d, LayerNorm
from nn.linear import Linear
from nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from nn.module import Module
from nn.norm import BatchNorm1d, BatchNorm2d
from nn.parameter import Parameter
from nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from nn.shape import Flatten, Identity
from nn.upsample import Upsample

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "InstanceNorm2d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Upsample",
    "functional",
    "init",
    "models",
    "utils",
]
