"""Schedules in cycles: one cycle, triangles, and cosines with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from alpha.arguments import flag, number
from alpha.changes import Action, putting, setting
from alpha.errors import ArgumentError, described
from alpha.nn.arguments import choice
from alpha.optim.arguments import finite, power
from alpha.optim.optimizer import Optimizer
from alpha.optim.schedules.base import JUMP, NEXT, LRScheduler, check_optimizer, cosine, count, per_group
from alpha.optim.state import Group


class OneCycleLR(LRScheduler):
    """One cycle: up from max_lr / div_factor to ``max_lr``, then down to the first over ``final_div_factor``.

    ``step()`` is called after each batch, not each epoch.
    Momentum (or Adam's first beta) goes the other way, between ``max_momentum`` and ``base_momentum``, if
    ``cycle_momentum``. Smith & Topin, arXiv 1708.07120.

    Args:
        max_lr: the highest rate: one, or one per group.
        total_steps: steps of the cycle; or else ``epochs`` and ``steps_per_epoch``, whose product it is.
        pct_start: share of the steps that go up.
        anneal_strategy: "cos" or "linear".
        three_phase: down to the first rate as long as it went up, and then to the last.
    """

    replaces_initial: ClassVar[bool] = True

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ArgumentError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, got neither")
        name = "OneCycleLR"
        check_optimizer(name, optimizer)
        if total_steps is None:
            total_steps = count(name, "epochs", epochs) * count(name, "steps_per_epoch", steps_per_epoch)
        self.total_steps = count(name, "total_steps", total_steps)
        pct_start, three_phase = number(name, "pct_start", pct_start), flag(name, "three_phase", three_phase)
        cycle_momentum = flag(name, "cycle_momentum", cycle_momentum)
        if not 0 <= pct_start <= 1:
            raise ArgumentError(f"[OneCycleLR] expected pct_start in 0..1, got {pct_start}")
        self.anneal_strategy = choice(anneal_strategy, ("cos", "linear"), "anneal_strategy", name)
        self.div_factor = finite(name, "div_factor", div_factor)
        self.final_div_factor = finite(name, "final_div_factor", final_div_factor)
        if self.div_factor == 0 or self.final_div_factor == 0:
            raise ArgumentError("[OneCycleLR] expected div_factor and final_div_factor other than 0, got 0")
        groups = optimizer.param_groups
        self.max_lrs = per_group(name, "max_lr", max_lr, len(groups))
        self.momenta = list(
            zip(
                per_group(name, "max_momentum", max_momentum, len(groups)),
                per_group(name, "base_momentum", base_momentum, len(groups)),
                strict=True,
            )
        )
        self.cycle_momentum = cycle_momentum
        check_cycled(name, optimizer, cycle_momentum)
        self._phases = self._make_phases(pct_start, three_phase)
        super().__init__(optimizer, last_epoch)

    def first_rates(self) -> list[float]:
        return [highest / self.div_factor for highest in self.max_lrs]

    def _make_phases(self, share: float, three: bool) -> list[tuple[float, str, str, int, int]]:
        """Each phase's last step, the rates it goes from and to, and the momenta (0 highest, 1 lowest)."""
        up = share * self.total_steps - 1
        last = self.total_steps - 1.0
        if three:
            return [(up, "first", "max", 0, 1), (2 * up, "max", "first", 1, 0), (last, "first", "last", 0, 0)]
        return [(up, "first", "max", 0, 1), (last, "max", "last", 1, 0)]

    def _phase(self, step: float) -> tuple[tuple[float, str, str, int, int], float]:
        """The phase of a step and the share of it that is done."""
        if step > self.total_steps:
            raise ArgumentError(
                f"[OneCycleLR] expected at most total_steps = {self.total_steps} steps, got {step}: make total_steps "
                "the number of batches in all"
            )
        start = 0.0
        for phase in self._phases[:-1]:
            if step <= phase[0]:
                return phase, _share(step, start, phase[0])
            start = phase[0]
        return self._phases[-1], _share(step, start, self._phases[-1][0])

    def _anneal(self, start: float, end: float, done: float) -> float:
        return start + (end - start) * done if self.anneal_strategy == "linear" else cosine(start, end, done)

    def rate(self, base: float, group: int, step: float) -> float:
        (_, start, end, _, _), done = self._phase(step)
        rates = {"first": base, "max": self.max_lrs[group], "last": base / self.final_div_factor}
        return self._anneal(rates[start], rates[end], done)

    def others(self, step: float, how: str) -> list[Action]:
        (_, _, _, start, end), done = self._phase(step)
        if not self.cycle_momentum:
            return []
        pairs = zip(self.optimizer.param_groups, self.momenta, strict=True)
        return [_putting_momentum(group, self._anneal(momenta[start], momenta[end], done)) for group, momenta in pairs]


class CyclicLR(LRScheduler):
    """Triangles: up from ``base_lr`` to ``max_lr`` and down again, over and over.

    ``step()`` is called after each batch.

    Momentum (or Adam's first beta) goes the other way, between ``max_momentum`` and ``base_momentum``, if
    ``cycle_momentum``. Smith, arXiv 1506.01186.

    Args:
        base_lr, max_lr: the lowest and the highest rate: one, or one per group.
        step_size_up, step_size_down: steps that go up, and down: None for as many.
        mode: "triangular"; "triangular2": each cycle half as high as the one before; "exp_range": gamma^step as high.
        scale_fn: a function of the height's factor instead, of the cycle's number (from 1) or, by ``scale_mode``
            "iterations", of the step's.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        name = "CyclicLR"
        check_optimizer(name, optimizer)
        groups = len(optimizer.param_groups)
        self._lowest = per_group(name, "base_lr", base_lr, groups)
        self.max_lrs = per_group(name, "max_lr", max_lr, groups)
        up = count(name, "step_size_up", step_size_up)
        self.total_size = up + (up if step_size_down is None else count(name, "step_size_down", step_size_down, 0))
        self.step_ratio = up / self.total_size
        self.gamma = finite(name, "gamma", gamma)
        if scale_fn is None:
            mode = choice(mode, ("triangular", "triangular2", "exp_range"), "mode", name)
        if scale_fn is not None and not callable(scale_fn):
            raise ArgumentError(f"[{name}] expected scale_fn as a function, got {described(scale_fn)}")
        self.mode, self._scale_fn = mode, scale_fn
        self.scale_mode = choice(scale_mode, ("cycle", "iterations"), "scale_mode", name)
        self.cycle_momentum = flag(name, "cycle_momentum", cycle_momentum)
        self.base_momentums = per_group(name, "base_momentum", base_momentum, groups)
        self.max_momentums = per_group(name, "max_momentum", max_momentum, groups)
        check_cycled(name, optimizer, self.cycle_momentum)
        super().__init__(optimizer, last_epoch)

    def first_rates(self) -> list[float]:
        return list(self._lowest)

    def _height(self, step: float) -> float:
        """How high a step is, 0 at the bottom and 1 at the top of the first cycle."""
        cycle = math.floor(1 + step / self.total_size)
        place = 1.0 + step / self.total_size - cycle
        if place <= self.step_ratio:
            height = place / self.step_ratio
        else:
            height = (place - 1) / (self.step_ratio - 1)
        if self._scale_fn is not None:
            scale = self._scale_fn(cycle if self.scale_mode == "cycle" else step)
            return height * number("CyclicLR", "scale_fn's result", scale)
        if self.mode == "exp_range":
            return height * power(self.gamma, step)
        return height / 2.0 ** (cycle - 1) if self.mode == "triangular2" else height

    def rate(self, base: float, group: int, step: float) -> float:
        return base + (self.max_lrs[group] - base) * self._height(step)

    def others(self, step: float, how: str) -> list[Action]:
        if not self.cycle_momentum:
            return []
        height, groups = self._height(step), self.optimizer.param_groups
        momenta = zip(groups, self.base_momentums, self.max_momentums, strict=True)
        return [_putting_momentum(group, most - (most - least) * height) for group, least, most in momenta]


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the rate down to ``eta_min`` along half a cosine, then from the start again, each time ``T_mult`` as long.

    ``step(epoch)`` also takes parts of epochs: ``step(epoch + batch / batches)`` after each batch. Loshchilov & Hutter,
    arXiv 1608.03983.

    Attributes:
        T_cur: the place in the cosine.
        T_i: the cosine's length; ``T_0`` is the first one's.
    """

    state_numbers: ClassVar[tuple[str, ...]] = ("T_cur", "T_i")
    takes_parts: ClassVar[bool] = True

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        name = "CosineAnnealingWarmRestarts"
        self.T_0, self.T_mult = count(name, "T_0", T_0), count(name, "T_mult", T_mult)
        self.eta_min = finite(name, "eta_min", eta_min)
        self.T_cur: float = 0
        self.T_i = self.T_0
        super().__init__(optimizer, last_epoch)

    def _place(self, step: float, how: str) -> tuple[float, int]:
        """The place in its cosine of a step, and the cosine's length."""
        place, length = (self.T_cur + 1, self.T_i) if how == NEXT else (step, self.T_0)
        if self.T_mult == 1:
            return place % length, length
        while place >= length:
            place, length = place - length, length * self.T_mult
        return place, length

    def _rates(self, place: float, length: int) -> list[float]:
        return [cosine(base, self.eta_min, place / length) for base in self.base_lrs]

    def jumped(self, rates: Sequence[float], step: float) -> list[float]:
        return self._rates(*self._place(step, JUMP))

    def moved(self, rates: Sequence[float], step: float) -> list[float]:
        return self._rates(*self._place(step, NEXT))

    def others(self, step: float, how: str) -> list[Action]:
        place, length = self._place(step, how)
        return [setting(self, "T_cur", place), setting(self, "T_i", length)]

    def others_in(self, state: Mapping[str, Any]) -> list[Action]:
        return []

    def _is_position(self, state: Mapping[str, Any]) -> bool:
        return super()._is_position(state) and state["T_i"] >= 1 and 0 <= state["T_cur"] <= state["T_i"]


def check_cycled(name: str, optimizer: Optimizer, cycle_momentum: bool) -> None:
    """ArgumentError where a momentum is to be cycled of an optimizer that has none."""
    if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
        raise ArgumentError(
            f"[{name}] expected an optimizer with momentum or betas, got {type(optimizer).__name__}: pass "
            "cycle_momentum=False"
        )


def _putting_momentum(group: Group, value: float) -> Action:
    if "betas" in group:
        return putting(group, "betas", (value, *group["betas"][1:]))
    return putting(group, "momentum", value)


def _share(step: float, start: float, end: float) -> float:
    """How much of a phase is done. The step after the last one still has the last one's rate."""
    return min(1.0, (step - start) / (end - start)) if end > start else 1.0
