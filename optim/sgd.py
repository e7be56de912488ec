"""Stochastic gradient descent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.optim.optimizer import Group, Optimizer, gradients
from alpha.tensor import Tensor
from alpha.updates import Plan


class SGD(Optimizer):
    """SGD with momentum: b = momentum b + (1 - dampening) g, p -= lr b; the first b is g.

    ``nesterov`` moves by g + momentum b; ``weight_decay`` adds weight_decay * p to the gradient.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    state_required: ClassVar[tuple[str, ...]] = ("momentum_buffer",)

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
        self.at_least("momentum", options["momentum"], 0)
        self.at_least("dampening", options["dampening"], -math.inf)
        self.switch("nesterov", options["nesterov"])
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ArgumentError(
                f"[SGD] expected momentum > 0 and dampening 0 for nesterov, got {options['momentum']} and "
                f"{options['dampening']}"
            )

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        if options["momentum"] == 0:
            self._prepare(plan, engine, params, options, None, False)
            return
        fresh = [p for p in params if p not in self.state]
        moving = [p for p in params if p in self.state]
        for chosen, first in ((fresh, True), (moving, False)):
            if chosen:
                momenta = [self.prepared(plan, p, "momentum_buffer")[0] for p in chosen]
                self._prepare(plan, engine, chosen, options, momenta, first)

    def _prepare(
        self,
        plan: Plan,
        engine: Engine,
        params: list[Tensor],
        options: Group,
        momenta: list[Tensor] | None,
        first: bool,
    ) -> None:
        numbers = partial(_numbers, options)
        engine.sgd_step(
            params,
            gradients(params),
            momenta,
            nesterov=options["nesterov"],
            first=first,
            **numbers(),
            refresh=numbers,
            plan=plan,
        )


def _numbers(options: Group) -> dict[str, Any]:
    """The numbers of a group's next step, by sgd_step's keywords."""
    return {key: options[key] for key in ("lr", "momentum", "dampening", "weight_decay")}
