"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.tensor import Tensor
from optim.optimizer import Group, Optimizer, gradients


class Adam(Optimizer):
    """Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps), ' corrected for bias.

    ``weight_decay`` adds weight_decay * p to the gradient. Kingma & Ba, arXiv 1412.6980.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
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
        self.at_least("eps", options["eps"], 0)
        betas = options["betas"]
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ArgumentError(f"[{type(self).__name__}] expected betas as a pair, got {described(betas)}")
        for beta in betas:
            self.below_one("betas", beta)

    def update(self, engine: Engine, params: list[Tensor], options: Group) -> None:
        # Parameters that had no gradient at times are behind in their count of steps.
        by_step: dict[int, list[Tensor]] = {}
        for param in params:
            state = self.state.setdefault(param, {"step": 0})
            by_step.setdefault(state["step"] + 1, []).append(param)
        for step, chosen in by_step.items():
            engine.adam_step(
                chosen,
                gradients(chosen),
                [self.entry(p, "exp_avg") for p in chosen],
                [self.entry(p, "exp_avg_sq") for p in chosen],
                decoupled=self.decoupled,
                **_numbers(options, step),
                refresh=partial(self._next, chosen, options),
            )
            self._count(chosen, step)

    def _next(self, params: list[Tensor], options: Group) -> dict[str, Any]:
        """What a captured step asks for before it runs again: counts it, and gives its numbers."""
        step = self.state[params[0]]["step"] + 1
        self._count(params, step)
        return _numbers(options, step)

    def _count(self, params: list[Tensor], step: int) -> None:
        for param in params:
            self.state[param]["step"] = step


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


def _numbers(options: Group, step: int) -> dict[str, Any]:
    """The numbers of one step of a group, by adam_step's keywords."""
    return {
        "lr": options["lr"],
        "betas": tuple(options["betas"]),
        "eps": options["eps"],
        "weight_decay": options["weight_decay"],
        "step": step,
    }
