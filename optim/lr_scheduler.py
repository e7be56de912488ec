"""Schedules of the learning rate: each gives the rate of a step in closed form, from the groups' initial rates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from alpha.errors import ArgumentError, CheckpointError
from optim.optimizer import Group, Optimizer


class LRScheduler:
    """Base of the schedulers: sets every group's ``lr`` when made, and again at each ``step()``.

    A subclass writes ``rate(base, group, step)``. Call ``step()`` after ``optimizer.step()``.

    Attributes:
        last_epoch: how often ``step()`` was called.
        base_lrs: the groups' rates at the start, kept in their ``initial_lr`` where several schedulers share them.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"[{self._name}] expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["lr"] for group in optimizer.param_groups]
        self.last_epoch = 0
        self.apply()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def rate(self, base: float, group: int, step: int) -> float:
        """The rate of a group after a number of steps; a subclass's part."""
        raise NotImplementedError(f"[{self._name}] expected a subclass with rate, got none: write one")

    def apply(self) -> None:
        """Sets the groups' options to what they are at ``last_epoch``."""
        for index, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = self.rate(base, index, self.last_epoch)

    def step(self) -> Self:
        """Goes one step on."""
        self.last_epoch += 1
        self.apply()
        return self

    def get_last_lr(self) -> list[float]:
        """The groups' rates now."""
        return [group["lr"] for group in self.optimizer.param_groups]
