"""Schedules of the learning rate, each in closed form: a step's rate follows from the groups' initial rates alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from alpha import steps
from alpha.arguments import flag, number, whole
from alpha.changes import Action, Changes, at_once, putting, setting
from alpha.errors import AlphaError, ArgumentError, CheckpointError, described
from alpha.functions.operands import listed
from alpha.optim.arguments import finite, power
from alpha.optim.optimizer import Group, Optimizer, is_count, is_finite, shown


class LRScheduler:
    """Base of the schedulers: sets every group's ``lr`` when made, and again at each ``step()``.

    A subclass writes ``rate``. Call ``step()`` after ``optimizer.step()``.

    Attributes:
        last_epoch: how often ``step()`` was called.
        base_lrs: the groups' rates before any scheduler, which their ``initial_lr`` keeps.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"[{self._name}] expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        groups = optimizer.param_groups
        self.base_lrs: list[float] = self.first_rates()
        self.last_epoch = 0
        noted = [putting(group, "initial_lr", rate) for group, rate in zip(groups, self.base_lrs, strict=True)]
        if type(self).apply is LRScheduler.apply:
            at_once([*noted, *self.options_at(0, self._initial())])
        else:
            at_once(noted)
            self.apply()

    def first_rates(self) -> list[float]:
        """The groups' initial rates: those before any scheduler."""
        return [{"initial_lr": group["lr"], **group}["initial_lr"] for group in self.optimizer.param_groups]

    @property
    def _name(self) -> str:
        return type(self).__name__

    def rate(self, base: float, group: int, step: int) -> float:
        """A group's rate after so many steps, from its initial rate; subclasses override this."""
        raise NotImplementedError(f"[{self._name}] expected a subclass with rate, got none: write one")

    def apply(self) -> None:
        """Sets the groups' options for ``last_epoch``."""
        at_once(self.options_at(self.last_epoch, self._initial()))

    def options_at(self, step: int, base_lrs: list[Any]) -> list[Action]:
        """The actions that set the groups' options for a number of steps, from these initial rates."""
        groups = self.optimizer.param_groups
        if len(groups) != len(base_lrs):
            raise ArgumentError(
                f"[{self._name}] expected the {len(base_lrs)} parameter groups it was made with, got "
                f"{len(groups)}: add groups before making the scheduler"
            )
        rates = [self.rate(base, index, step) for index, base in enumerate(base_lrs)]
        return [putting(group, "lr", rate) for group, rate in zip(groups, rates, strict=True)]

    def step(self) -> Self:
        """Goes one step further. After an error or an interrupt ``last_epoch`` and rates are as before, or as after."""
        steps.run_now_and_on_replay(self._advance)
        return self

    def _advance(self) -> None:
        step = self.last_epoch + 1
        if type(self).apply is LRScheduler.apply:
            at_once([*self.options_at(step, self._initial()), setting(self, "last_epoch", step)])
        else:  # of one's own
            self.last_epoch = step
            self.apply()

    def _initial(self) -> list[Any]:
        """The initial rates; for a scheduler of schedulers, theirs."""
        return self.base_lrs

    def _initial_in(self, state: Mapping[str, Any]) -> list[Any]:
        """The initial rates in a state."""
        return list(state["base_lrs"])

    def get_last_lr(self) -> list[float]:
        """The groups' rates now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Position and initial rates; the schedule's own numbers come from the constructor."""
        return {"scheduler": self._name, "last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Restores a state from ``state_dict`` and sets the rates; CheckpointError if it does not fit.

        An error or a KeyboardInterrupt finds all as before or all as after.
        """
        changes = Changes()
        self.stage_state(state, changes)
        changes.make()
        return self

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state, and adds to the changes what ``load_state_dict`` does with it."""
        self.check_state(state)
        try:
            options = self.options_at(state["last_epoch"], self._initial_in(state))
        except (AlphaError, ArithmeticError) as error:
            raise CheckpointError(
                f"[{self._name}.load_state_dict] expected a state that this {self._name} can be in, got "
                f"{shown(state)}: {error}"
            ) from error
        self.adopt(state, changes)
        changes.add(*options)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """CheckpointError unless ``adopt`` may take the state."""
        fits = isinstance(state, Mapping) and set(state) == set(self.state_dict())
        if not fits or state["scheduler"] != self._name or not self._is_position(state):
            raise CheckpointError(
                f"[{self._name}.load_state_dict] expected the state of a {self._name} of {len(self.base_lrs)} groups, "
                f"got {shown(state)}: make the scheduler that was saved"
            )

    def _is_position(self, state: Mapping[str, Any]) -> bool:
        rates = state["base_lrs"]
        fits = isinstance(rates, list | tuple) and len(rates) == len(self.base_lrs) and all(map(is_finite, rates))
        return fits and is_count(state["last_epoch"])

    def adopt(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Adopts a state that was checked."""
        changes.set(self, "last_epoch", state["last_epoch"])
        changes.set(self, "base_lrs", list(state["base_lrs"]))


class StepLR(LRScheduler):
    """The rate times gamma every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = _count("StepLR", "step_size", step_size)
        self.gamma = finite("StepLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        return base * power(self.gamma, step // self.step_size)


class MultiStepLR(LRScheduler):
    """The rate times gamma at each milestone, a number of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        steps = listed("MultiStepLR", "milestones", milestones)
        self.milestones = sorted(whole("MultiStepLR", "milestones", step) for step in steps)
        self.gamma = finite("MultiStepLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        return base * power(self.gamma, bisect_right(self.milestones, step))


class ExponentialLR(LRScheduler):
    """The rate times gamma at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = finite("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        return base * power(self.gamma, step)


class CosineAnnealingLR(LRScheduler):
    """From the rate down to ``eta_min`` in ``T_max`` steps along half a cosine, and up again in as many.

    Loshchilov & Hutter, arXiv 1608.03983, without restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max = _count("CosineAnnealingLR", "T_max", T_max)
        self.eta_min = finite("CosineAnnealingLR", "eta_min", eta_min)
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class LinearLR(LRScheduler):
    """Linear warm-up: the rate times a factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters``."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        start_factor = number("LinearLR", "start_factor", start_factor)
        end_factor = number("LinearLR", "end_factor", end_factor)
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            got = f"{start_factor} and {end_factor}"
            raise ArgumentError(f"[LinearLR] expected 0 < start_factor <= 1 and 0 <= end_factor <= 1, got {got}")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = _count("LinearLR", "total_iters", total_iters)
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class LambdaLR(LRScheduler):
    """The rate times ``lr_lambda(step)``: one function, or one per group. A state_dict does not hold the functions."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]
    ) -> None:
        _check_optimizer("LambdaLR", optimizer)
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else listed("LambdaLR", "lr_lambda", lr_lambda)
        if any(not callable(function) for function in self.lr_lambdas):
            raise ArgumentError(f"[LambdaLR] expected lr_lambda as functions of a step, got {described(lr_lambda)}")
        if len(self.lr_lambdas) != groups:
            raise ArgumentError(f"[LambdaLR] expected {groups} functions, one per group, got {len(self.lr_lambdas)}")
        super().__init__(optimizer)

    def rate(self, base: float, group: int, step: int) -> float:
        return base * number("LambdaLR", "lr_lambda's result", self.lr_lambdas[group](step))


class SequentialLR(LRScheduler):
    """One scheduler after another: the next begins, at its own step 0, at each milestone."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        schedulers = listed("SequentialLR", "schedulers", schedulers)
        milestones = [whole("SequentialLR", "milestones", n) for n in listed("SequentialLR", "milestones", milestones)]
        if not all(isinstance(scheduler, LRScheduler) for scheduler in schedulers):
            raise ArgumentError(f"[SequentialLR] expected schedulers, got {described(schedulers)}")
        if len(schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ArgumentError(
                "[SequentialLR] expected ascending milestones, one fewer than schedulers, got "
                f"{list(milestones)} for {len(schedulers)} schedulers"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ArgumentError("[SequentialLR] expected schedulers of the same optimizer, got one of another")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def options_at(self, step: int, base_lrs: list[Any]) -> list[Action]:
        current = bisect_right(self.milestones, step)
        scheduler = self.schedulers[current]
        position = step - (self.milestones[current - 1] if current else 0)
        options = scheduler.options_at(position, base_lrs[current])
        return [*options, setting(scheduler, "last_epoch", position)]

    def _initial(self) -> list[Any]:
        return [scheduler._initial() for scheduler in self.schedulers]

    def _initial_in(self, state: Mapping[str, Any]) -> list[Any]:
        pairs = zip(self.schedulers, state["schedulers"], strict=True)
        return [scheduler._initial_in(inner) for scheduler, inner in pairs]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def check_state(self, state: Mapping[str, Any]) -> None:
        super().check_state(state)
        if not isinstance(state["schedulers"], list | tuple) or len(state["schedulers"]) != len(self.schedulers):
            raise CheckpointError(
                f"[SequentialLR.load_state_dict] expected the states of {len(self.schedulers)} schedulers, got "
                f"{shown(state['schedulers'])}: make the scheduler that was saved"
            )
        for scheduler, inner in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.check_state(inner)

    def adopt(self, state: Mapping[str, Any], changes: Changes) -> None:
        super().adopt(state, changes)
        for scheduler, inner in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.adopt(inner, changes)


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
    ) -> None:
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ArgumentError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, got neither")
        name = "OneCycleLR"
        _check_optimizer(name, optimizer)
        if total_steps is None:
            total_steps = _count(name, "epochs", epochs) * _count(name, "steps_per_epoch", steps_per_epoch)
        self.total_steps = _count(name, "total_steps", total_steps)
        pct_start, three_phase = number(name, "pct_start", pct_start), flag(name, "three_phase", three_phase)
        cycle_momentum = flag(name, "cycle_momentum", cycle_momentum)
        if not 0 <= pct_start <= 1:
            raise ArgumentError(f"[OneCycleLR] expected pct_start in 0..1, got {pct_start}")
        if not isinstance(anneal_strategy, str) or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f'[OneCycleLR] expected anneal_strategy "cos" or "linear", got {described(anneal_strategy)}'
            )
        self.anneal_strategy = anneal_strategy
        self.div_factor = finite(name, "div_factor", div_factor)
        self.final_div_factor = finite(name, "final_div_factor", final_div_factor)
        if self.div_factor == 0 or self.final_div_factor == 0:
            raise ArgumentError("[OneCycleLR] expected div_factor and final_div_factor other than 0, got 0")
        groups = optimizer.param_groups
        self.max_lrs = _per_group("max_lr", max_lr, len(groups))
        self.momenta = list(
            zip(
                _per_group("max_momentum", max_momentum, len(groups)),
                _per_group("base_momentum", base_momentum, len(groups)),
                strict=True,
            )
        )
        self.cycle_momentum = cycle_momentum
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ArgumentError(
                f"[OneCycleLR] expected an optimizer with momentum or betas, got {type(optimizer).__name__}: pass "
                "cycle_momentum=False"
            )
        self._phases = self._make_phases(pct_start, three_phase)
        super().__init__(optimizer)

    def first_rates(self) -> list[float]:
        return [highest / self.div_factor for highest in self.max_lrs]

    def _make_phases(self, share: float, three: bool) -> list[tuple[float, str, str, int, int]]:
        """Each phase's last step, the rates it goes from and to, and the momenta (0 highest, 1 lowest)."""
        up = share * self.total_steps - 1
        last = self.total_steps - 1.0
        if three:
            return [(up, "first", "max", 0, 1), (2 * up, "max", "first", 1, 0), (last, "first", "last", 0, 0)]
        return [(up, "first", "max", 0, 1), (last, "max", "last", 1, 0)]

    def _phase(self, step: int) -> tuple[tuple[float, str, str, int, int], float]:
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
        if self.anneal_strategy == "linear":
            return start + (end - start) * done
        return end + (start - end) / 2 * (1 + math.cos(math.pi * done))

    def rate(self, base: float, group: int, step: int) -> float:
        (_, start, end, _, _), done = self._phase(step)
        rates = {"first": base, "max": self.max_lrs[group], "last": base / self.final_div_factor}
        return self._anneal(rates[start], rates[end], done)

    def options_at(self, step: int, base_lrs: list[Any]) -> list[Action]:
        actions = super().options_at(step, base_lrs)
        if self.cycle_momentum:
            (_, _, _, start, end), done = self._phase(step)
            for group, momenta in zip(self.optimizer.param_groups, self.momenta, strict=True):
                actions.append(_putting_momentum(group, self._anneal(momenta[start], momenta[end], done)))
        return actions


def _putting_momentum(group: Group, value: float) -> Action:
    if "betas" in group:
        return putting(group, "betas", (value, group["betas"][1]))
    return putting(group, "momentum", value)


def _share(step: int, start: float, end: float) -> float:
    """How much of a phase is done. The step after the last one still has the last one's rate."""
    return min(1.0, (step - start) / (end - start)) if end > start else 1.0


def _count(name: str, option: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ArgumentError(f"[{name}] expected {option} as an int >= 1, got {described(value)}")
    return whole(name, option, value)


def _check_optimizer(name: str, value: Any) -> None:
    if not isinstance(value, Optimizer):
        raise ArgumentError(f"[{name}] expected an Optimizer, got {type(value).__name__}")


def _per_group(option: str, value: float | Sequence[float], groups: int) -> list[float]:
    given = value if isinstance(value, tuple | list) else [value] * groups
    if len(given) != groups:
        raise ArgumentError(
            f"[OneCycleLR] expected {option} as one number or {groups}, one per group, got {described(value)}"
        )
    return [finite("OneCycleLR", option, n) for n in given]
