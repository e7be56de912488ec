"""Stochastic gradient descent, with momentum or averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from alpha.adaptive_rules import ASGDRule
from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.optim.arguments import power
from alpha.optim.optimizer import Optimizer
from alpha.optim.ruled import RuleOptimizer, plain_options
from alpha.optim.state import Group, State
from alpha.tensor import Tensor
from alpha.update_rules import SGDRule, UpdateRule
from alpha.updates import Plan


class SGD(Optimizer):
    """SGD with momentum: b = momentum b + (1 - dampening) g, p -= lr b; the first b is g.

    ``nesterov`` moves by g + momentum b; ``weight_decay`` adds weight_decay * p to the gradient.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    state_required: ClassVar[tuple[str, ...]] = state_tensors
    switches: ClassVar[tuple[str, ...]] = ("nesterov", "maximize")
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "momentum")
    later_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "differentiable": False, "fused": None,
    }  # fmt: skip

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float | Tensor = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        switches = {"nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable}
        super().__init__(params, {**options, **switches, "fused": fused})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        self.at_least("dampening", options["dampening"], -math.inf)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ArgumentError(
                f"[SGD] expected momentum > 0 and dampening 0 for nesterov, got {options['momentum']} and "
                f"{options['dampening']}"
            )

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        if options["momentum"] == 0:
            engine.optimizer_step(self.rows(plan, params), _rule(options), partial(_rule, options), plan)
            return
        fresh = [p for p in params if not self.state.get(p)]
        moving = [p for p in params if self.state.get(p)]
        for chosen, first in ((fresh, True), (moving, False)):
            if chosen:
                rows = self.rows(plan, chosen, "momentum_buffer")
                engine.optimizer_step(rows, _rule(options, first), partial(_rule, options), plan)


def _rule(options: Group, first: bool = False) -> SGDRule:
    """A group's next step."""
    names = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
    current = plain_options(options)
    return SGDRule(**{name: current[name] for name in names}, first=first)


class ASGD(RuleOptimizer):
    """Averaged SGD: p -= eta (g + lambd p), a += (p - a) mu; a, the average, is the state ``ax``.

    After step t, eta is lr / (1 + lambd lr t)^alpha and mu is 1 / max(1, t - t0): the average begins after t0 steps.
    ``weight_decay`` adds weight_decay * p to the gradient. Polyak & Juditsky, SIAM J. Control Optim. 30, 1992.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("ax",)
    state_required: ClassVar[tuple[str, ...]] = ("step", "eta", "mu", "ax")
    switches: ClassVar[tuple[str, ...]] = ("maximize",)
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "lambd")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        switches = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable}
        super().__init__(params, {**options, **switches, "capturable": capturable})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        for name in ("alpha", "t0"):
            self.at_least(name, options[name], -math.inf)

    def tensors(self, options: Group) -> Sequence[str]:
        return ("ax",)

    def first_numbers(self, options: Group) -> State:
        return {"step": 0, "eta": float(options["lr"]), "mu": 1.0}

    def next_numbers(self, options: Group, numbers: State) -> State:
        step, lr = numbers["step"] + 1, options["lr"]
        eta = lr * power(1 + options["lambd"] * lr * step, -options["alpha"])
        return {"step": step, "eta": eta, "mu": 1 / max(1, step - options["t0"])}

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        return ASGDRule(options["lambd"], numbers["eta"], numbers["mu"], options["weight_decay"], options["maximize"])
