"""Modules, layers, losses, initialisation, functional forms and models."""

from __future__ import annotations

from alpha.nn import functional, init, models, utils
from alpha.nn.activation import (
    GELU,
    GLU,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softsign,
    Tanh,
    Tanhshrink,
)
from alpha.nn.attention import MultiheadAttention
from alpha.nn.cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from alpha.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from alpha.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from alpha.nn.dropout import Dropout
from alpha.nn.embedding import Embedding
from alpha.nn.layer_norm import GroupNorm, InstanceNorm2d, LayerNorm, RMSNorm
from alpha.nn.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    LazyLinear,
    UninitializedBuffer,
    UninitializedParameter,
)
from alpha.nn.linear import Linear
from alpha.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm1d, BatchNorm2d
from alpha.nn.parameter import Parameter
from alpha.nn.piecewise import (
    CELU,
    ELU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    PReLU,
    ReLU6,
    Softshrink,
    Threshold,
)
from alpha.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from alpha.nn.recurrent import GRU, LSTM, RNN, RNNBase
from alpha.nn.shape import Flatten, Identity
from alpha.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from alpha.nn.upsample import Upsample
from alpha.nn.views import AveragedViews

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "GRU",
    "LSTM",
    "RNN",
    "SELU",
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
    "GRUCell",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "InstanceNorm2d",
    "LSTMCell",
    "LayerNorm",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyLinear",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "PReLU",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "UninitializedBuffer",
    "UninitializedParameter",
    "Upsample",
    "functional",
    "init",
    "models",
    "utils",
]
