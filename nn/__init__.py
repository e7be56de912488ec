"""Modules, layers, losses, initialisation, functional forms and models."""

from __future__ import annotations

from alpha.nn import functional, init, models, utils
from alpha.nn.activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from alpha.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from alpha.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from alpha.nn.dropout import Dropout
from alpha.nn.embedding import Embedding
from alpha.nn.layer_norm import GroupNorm, InstanceNorm2d, LayerNorm, RMSNorm
from alpha.nn.linear import Linear
from alpha.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm1d, BatchNorm2d
from alpha.nn.parameter import Parameter
from alpha.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from alpha.nn.shape import Flatten, Identity
from alpha.nn.upsample import Upsample
from alpha.nn.views import AveragedViews

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AveragedViews",
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
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
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
