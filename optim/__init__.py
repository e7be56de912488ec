"""Optimizers, schedules of the learning rate, limits on gradients and averages of weights, by PyTorch's names."""

from __future__ import annotations

from alpha.optim import lr_scheduler
from alpha.optim.adagrad import Adadelta, Adagrad
from alpha.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from alpha.optim.averaging import AveragedModel
from alpha.optim.clip import clip_grad_norm_, clip_grad_value_
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
from alpha.optim.rmsprop import RMSprop, Rprop
from alpha.optim.sgd import ASGD, SGD

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "AveragedModel",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "Muon",
    "OneCycleLR",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
]
