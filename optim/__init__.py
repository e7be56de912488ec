"""Optimizers, schedules of the learning rate, limits on gradients and averages of weights, by PyTorch's names."""

from __future__ import annotations

from alpha.nn.utils.clip import clip_grad_norm_, clip_grad_value_
from alpha.optim import lr_scheduler
from alpha.optim.adam import Adam, AdamW
from alpha.optim.averaging import AveragedModel
from alpha.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from alpha.optim.muon import Muon
from alpha.optim.optimizer import Optimizer
from alpha.optim.rmsprop import RMSprop
from alpha.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "AveragedModel",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "Muon",
    "OneCycleLR",
    "Optimizer",
    "RMSprop",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]
