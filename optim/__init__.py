"""Optimizers, schedules of the learning rate, limits on gradients and averages of weights, by PyTorch's names."""

from __future__ import annotations

from alpha.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_
from alpha.optim import lr_scheduler, swa_utils
from alpha.optim.adafactor import Adafactor
from alpha.optim.adagrad import Adadelta, Adagrad
from alpha.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from alpha.optim.averaging import AveragedModel
from alpha.optim.lbfgs import LBFGS
from alpha.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from alpha.optim.muon import Muon
from alpha.optim.optimizer import Optimizer
from alpha.optim.rmsprop import RMSprop, Rprop
from alpha.optim.sgd import ASGD, SGD
from alpha.optim.sharded import Sharded

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "AveragedModel",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "Rprop",
    "SequentialLR",
    "Sharded",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
    "lr_scheduler",
    "swa_utils",
]
