"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from alpha.changes import at_once, putting
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.optim.optimizer import Group, Optimizer
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule
from alpha.updates import Plan


class Adam(Optimizer):
    """Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps), ' corrected for bias.

    ``weight_decay`` adds weight_decay * p to the gradient. Kingma & Ba, arXiv 1412.6980.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    state_required: ClassVar[tuple[str, ...]] = ("step", "exp_avg", "exp_avg_sq")
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "eps")
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        betas = options["betas"]
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ArgumentError(f"[{type(self).__name__}] expected betas as a pair, got {described(betas)}")
        for beta in betas:
            self.below_one("betas", beta)

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        # Parameters that had no gradient at times are behind in their count of steps.
        by_step: dict[int, list[Tensor]] = {}
        for param in params:
            by_step.setdefault(self._step_of(param) + 1, []).append(param)
        for step, chosen in by_step.items():
            rows = self.rows(plan, chosen, "exp_avg", "exp_avg_sq", step=step)
            engine.optimizer_step(rows, self._rule(options, step), partial(self._next, chosen, options), plan)

    def _step_of(self, param: Tensor) -> int:
        step: int = self.state[param]["step"] if param in self.state else 0
        return step

    def _rule(self, options: Group, step: int) -> AdamRule:
        betas, weight_decay = tuple(options["betas"]), options["weight_decay"]
        return AdamRule(options["lr"], betas, options["eps"], weight_decay, step, self.decoupled)

    def _next(self, params: list[Tensor], options: Group) -> AdamRule:
        """What a captured step asks for before it runs again: counts it, and gives its rule."""
        step = self._step_of(params[0]) + 1
        at_once([putting(self.state[param], "step", step) for param in params])
        return self._rule(options, step)


class AdamW(Adam):
    """Adam with decoupled weight decay: p is first multiplied by 1 - lr * weight_decay.

    Loshchilov & Hutter, arXiv 1711.05101.
    """

    decoupled: ClassVar[bool] = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
