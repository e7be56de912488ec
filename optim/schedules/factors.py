"""Schedules that multiply the rate by a factor of the step."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from alpha.arguments import listed, number, whole
from alpha.errors import ArgumentError, described
from alpha.optim.arguments import finite, plain, power
from alpha.optim.optimizer import Optimizer
from alpha.optim.schedules.base import LRScheduler, check_optimizer, count

Factor = Callable[[Any], float]


class FactorLR(LRScheduler):
    """Base of the schedules by which a rate is ``floor`` + (initial rate - floor) * ``factor_at(step)``."""

    floor: float = 0.0
    rests_when_made: ClassVar[bool] = True
    """Whether a schedule that is made for a later step takes the rates it finds for those of that step."""

    @abstractmethod
    def factor_at(self, step: float) -> float:
        """The factor after so many steps."""

    def rate(self, base: float, group: int, step: float) -> float:
        return self.floor + (base - self.floor) * self.factor_at(step)

    def begun(self, rates: Sequence[float], step: float) -> list[float]:
        if step > 0:
            return list(rates) if self.rests_when_made else self.moved(rates, step)
        factor = self.factor_at(0)
        return list(rates) if factor == 1 else [self.floor + (rate - self.floor) * factor for rate in rates]

    def moved(self, rates: Sequence[float], step: float) -> list[float]:
        before, after = self.factor_at(step - 1), self.factor_at(step)
        if before == after:
            return list(rates)
        if before == 0:
            return [rate + (base - self.floor) * after for rate, base in zip(rates, self.base_lrs, strict=True)]
        return [self.floor + (rate - self.floor) * (after / before) for rate in rates]


class StepLR(FactorLR):
    """The rate times gamma every ``step_size`` steps."""

    rests_when_made: ClassVar[bool] = False

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = count("StepLR", "step_size", step_size)
        self.gamma = finite("StepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return power(self.gamma, step // self.step_size)


class MultiStepLR(FactorLR):
    """The rate times gamma at each milestone, a number of steps."""

    rests_when_made: ClassVar[bool] = False

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        steps = listed("MultiStepLR", "milestones", milestones)
        self.milestones = sorted(whole("MultiStepLR", "milestones", step) for step in steps)
        self.gamma = finite("MultiStepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return power(self.gamma, bisect_right(self.milestones, step))


class ConstantLR(FactorLR):
    """The rate times ``factor`` for the first ``total_iters`` steps."""

    rests_when_made: ClassVar[bool] = False

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor = number("ConstantLR", "factor", factor)
        if not 0 <= self.factor <= 1:
            raise ArgumentError(f"[ConstantLR] expected factor in 0..1, got {self.factor}")
        self.total_iters = count("ConstantLR", "total_iters", total_iters, least=0)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return self.factor if step < self.total_iters else 1.0


class LinearLR(FactorLR):
    """Linear warm-up: the rate times a factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters``."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        start_factor = number("LinearLR", "start_factor", start_factor)
        end_factor = number("LinearLR", "end_factor", end_factor)
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            got = f"{start_factor} and {end_factor}"
            raise ArgumentError(f"[LinearLR] expected 0 < start_factor <= 1 and 0 <= end_factor <= 1, got {got}")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = count("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class ExponentialLR(FactorLR):
    """The rate times gamma at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = finite("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return power(self.gamma, step)

    def moved(self, rates: Sequence[float], step: float) -> list[float]:
        return [rate * self.gamma for rate in rates]


class PolynomialLR(FactorLR):
    """The rate times (1 - step / total_iters)^power, down to 0 in ``total_iters`` steps."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = count("PolynomialLR", "total_iters", total_iters)
        self.power = finite("PolynomialLR", "power", power)
        if self.power < 0:
            raise ArgumentError(f"[PolynomialLR] expected power >= 0, got {self.power}: 1.0 goes down on a line")
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return float((1 - min(step, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(FactorLR):
    """From the rate down to ``eta_min`` in ``T_max`` steps along half a cosine, and up again in as many.

    Loshchilov & Hutter, arXiv 1608.03983, without restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = count("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = self.floor = finite("CosineAnnealingLR", "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def factor_at(self, step: float) -> float:
        return (1 + math.cos(math.pi * step / self.T_max)) / 2


# -- factors of one's own ----------------------------------------------------------------------------------------------


class LambdaLR(LRScheduler):
    """The rate times ``lr_lambda(step)``: one function, or one per group. A state_dict does not hold the functions."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas = _functions("LambdaLR", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, step: float) -> float:
        return base * number("LambdaLR", "lr_lambda's result", plain(self.lr_lambdas[group](step)))


class MultiplicativeLR(LRScheduler):
    """The rate of the step before times ``lr_lambda(step)``: one function, or one per group, which no state holds."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas = _functions("MultiplicativeLR", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def begun(self, rates: Sequence[float], step: float) -> list[float]:
        return list(rates)

    def jumped(self, rates: Sequence[float], step: float) -> list[float]:
        pairs = zip(self.lr_lambdas, rates, strict=True)
        return [rate * number("MultiplicativeLR", "lr_lambda's result", plain(factor(step))) for factor, rate in pairs]


def _functions(name: str, optimizer: Optimizer, given: Factor | Sequence[Factor]) -> list[Factor]:
    """A function of a step per group."""
    check_optimizer(name, optimizer)
    groups = len(optimizer.param_groups)
    found = [given] * groups if callable(given) else listed(name, "lr_lambda", given)
    if any(not callable(function) for function in found):
        raise ArgumentError(f"[{name}] expected lr_lambda as functions of a step, got {described(given)}")
    if len(found) != groups:
        raise ArgumentError(f"[{name}] expected {groups} functions, one per group, got {len(found)}")
    return found
