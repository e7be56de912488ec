"""Schedules of the learning rate, by PyTorch's names and under its module's name."""

from __future__ import annotations

from alpha.optim.schedules.base import LRScheduler
from alpha.optim.schedules.composed import ChainedScheduler, SequentialLR
from alpha.optim.schedules.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from alpha.optim.schedules.factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from alpha.optim.schedules.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler
"""The name that PyTorch's class had until 2.0."""

__all__ = [
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
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
