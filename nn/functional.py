"""The differentiable functions that layers call, under PyTorch's names; images are (N, H, W, C)."""

from __future__ import annotations

from alpha.functions import (
    adaptive_avg_pool2d,
    avg_pool2d,
    batch_norm,
    binary_cross_entropy_with_logits,
    conv2d,
    conv_transpose2d,
    cross_entropy,
    dropout,
    gelu,
    leaky_relu,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    relu,
    sigmoid,
    silu,
    softmax,
    tanh,
)

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "conv_transpose2d",
    "cross_entropy",
    "dropout",
    "gelu",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]
