"""ReduceLROnPlateau: a rate that falls when a metric no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from alpha.arguments import number
from alpha.changes import Action, at_once, setting
from alpha.errors import ArgumentError
from alpha.nn.arguments import choice
from alpha.optim.arguments import finite, plain
from alpha.optim.optimizer import Optimizer
from alpha.optim.schedules.base import LRScheduler, check_optimizer, count, per_group


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` when a metric has not improved for more than ``patience`` steps: ``step(metric)``.

    Args:
        mode: "min", a smaller metric is better, or "max".
        threshold, threshold_mode: how much better counts: a share of the best one ("rel") or so much ("abs").
        cooldown: steps after a fall in which nothing is counted.
        min_lr: the lowest rate: one, or one per group.
        eps: a fall by no more than this is left out.

    Attributes:
        best: the best metric so far.
        num_bad_epochs: steps since then.
        cooldown_counter: steps of the cooldown that are left.
    """

    state_numbers: ClassVar[tuple[str, ...]] = ("best", "num_bad_epochs", "cooldown_counter")

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        name = "ReduceLROnPlateau"
        check_optimizer(name, optimizer)
        self.factor = finite(name, "factor", factor)
        if self.factor >= 1:
            raise ArgumentError(f"[{name}] expected factor < 1, got {self.factor}")
        self.optimizer, self.mode = optimizer, choice(mode, ("min", "max"), "mode", name)
        self.threshold_mode = choice(threshold_mode, ("rel", "abs"), "threshold_mode", name)
        self.patience = count(name, "patience", patience, least=0)
        self.cooldown = count(name, "cooldown", cooldown, least=0)
        self.threshold, self.eps = finite(name, "threshold", threshold), finite(name, "eps", eps)
        self.min_lrs = per_group(name, "min_lr", min_lr, len(optimizer.param_groups))
        self.base_lrs = self.first_rates()
        self.last_epoch = 0
        self._last_lr = self.rates_now()
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether nothing is counted yet after a fall."""
        return self.cooldown_counter > 0

    def is_better(self, metric: float) -> bool:
        """Whether a metric is better than the best one, by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        margin = sign * self.threshold
        least = self.best * (1 + margin) if self.threshold_mode == "rel" else self.best + margin
        return metric > least if self.mode == "max" else metric < least

    def step(self, metrics: Any, epoch: int | None = None) -> Self:  # type: ignore[override]
        """Takes in a metric, a number or a tensor of one, and reduces the rates where it is time to."""
        self.check_groups()
        metric = number("ReduceLROnPlateau.step", "metrics", plain(metrics))
        best, bad, cooldown = self.best, self.num_bad_epochs + 1, self.cooldown_counter
        if self.is_better(metric):
            best, bad = metric, 0
        if cooldown > 0:
            cooldown, bad = cooldown - 1, 0
        rates = self.rates_now()
        falls = bad > self.patience
        if falls:
            cooldown, bad = self.cooldown, 0
            lower = [max(rate * self.factor, least) for rate, least in zip(rates, self.min_lrs, strict=True)]
            rates = [new if old - new > self.eps else old for old, new in zip(rates, lower, strict=True)]
        last_epoch = self.last_epoch + 1 if epoch is None else count("ReduceLROnPlateau.step", "epoch", epoch, least=0)
        now = {"best": best, "num_bad_epochs": bad, "cooldown_counter": cooldown}
        noted = {**now, "last_epoch": last_epoch, "_last_lr": rates}
        put: list[Action] = self._putting(rates) if falls else []
        at_once([*[setting(self, key, value) for key, value in noted.items()], *put])
        return self

    def rates_in(self, state: Mapping[str, Any]) -> list[float]:
        return list(state["rates"])
