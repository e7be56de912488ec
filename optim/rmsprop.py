"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from alpha.engine import Engine
from alpha.optim.optimizer import Group, Optimizer
from alpha.tensor import Tensor
from alpha.update_rules import RMSpropRule
from alpha.updates import Plan


class RMSprop(Optimizer):
    """RMSprop: v = alpha v + (1 - alpha) g^2, p -= lr g / (sqrt(v) + eps).

    ``centered`` subtracts the square of the gradient's running mean from v; with ``momentum`` the quotient runs
    through a buffer b = momentum b + quotient. Tieleman & Hinton, Coursera lecture 6.5, 2012; Graves, arXiv 1308.0850.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("square_avg", "momentum_buffer", "grad_avg")
    state_required: ClassVar[tuple[str, ...]] = ("square_avg",)
    switches: ClassVar[tuple[str, ...]] = ("centered",)
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "alpha", "eps", "momentum")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "momentum": momentum, "centered": centered})

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        keys = ["square_avg"]
        if options["momentum"] > 0:
            keys.append("momentum_buffer")
        if options["centered"]:
            keys.append("grad_avg")
        rule = partial(_rule, options)
        engine.optimizer_step(self.rows(plan, params, *keys), rule(), rule, plan)


def _rule(options: Group) -> RMSpropRule:
    """A group's next step."""
    names = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered")
    return RMSpropRule(**{name: options[name] for name in names})
