"""Stochastic gradient descent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.optim.optimizer import Group, Optimizer
from alpha.tensor import Tensor
from alpha.update_rules import SGDRule
from alpha.updates import Plan


class SGD(Optimizer):
    """SGD with momentum: b = momentum b + (1 - dampening) g, p -= lr b; the first b is g.

    ``nesterov`` moves by g + momentum b; ``weight_decay`` adds weight_decay * p to the gradient.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    state_required: ClassVar[tuple[str, ...]] = state_tensors
    switches: ClassVar[tuple[str, ...]] = ("nesterov",)
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "momentum")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(params, {**options, "weight_decay": weight_decay, "nesterov": nesterov})

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
        fresh = [p for p in params if p not in self.state]
        moving = [p for p in params if p in self.state]
        for chosen, first in ((fresh, True), (moving, False)):
            if chosen:
                rows = self.rows(plan, chosen, "momentum_buffer")
                engine.optimizer_step(rows, _rule(options, first), partial(_rule, options), plan)


def _rule(options: Group, first: bool = False) -> SGDRule:
    """A group's next step."""
    names = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
    return SGDRule(**{name: options[name] for name in names}, first=first)
