"""Adagrad and Adadelta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from alpha.adaptive_rules import AdadeltaRule, AdagradRule
from alpha.optim.ruled import RuleOptimizer
from alpha.optim.state import Group, State
from alpha.tensor import Tensor
from alpha.update_rules import UpdateRule


class Adagrad(RuleOptimizer):
    """Adagrad: s += g^2, p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps), t the number of the step.

    s starts from ``initial_accumulator_value``, in a parameter's first step; ``weight_decay`` adds weight_decay * p to
    the gradient. Duchi et al., JMLR 12, 2011.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("sum",)
    state_required: ClassVar[tuple[str, ...]] = ("step", "sum")
    switches: ClassVar[tuple[str, ...]] = ("maximize",)
    not_negative: ClassVar[tuple[str, ...]] = (
        *RuleOptimizer.not_negative, "lr_decay", "initial_accumulator_value", "eps",
    )  # fmt: skip

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        switches = {"foreach": foreach, "maximize": maximize, "differentiable": differentiable, "fused": fused}
        super().__init__(params, {**options, "initial_accumulator_value": initial_accumulator_value, **switches})

    def tensors(self, options: Group) -> Sequence[str]:
        return ("sum",)

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        rates = {name: options[name] for name in ("lr", "lr_decay", "eps", "weight_decay", "maximize")}
        return AdagradRule(**rates, initial=options["initial_accumulator_value"], step=numbers["step"] + 1)


class Adadelta(RuleOptimizer):
    """Adadelta: v = rho v + (1 - rho) g^2, d = sqrt(u + eps) / sqrt(v + eps) g, u = rho u + (1 - rho) d^2, p -= lr d.

    ``weight_decay`` adds weight_decay * p to the gradient. Zeiler, arXiv 1212.5701.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("square_avg", "acc_delta")
    state_required: ClassVar[tuple[str, ...]] = ("step", *state_tensors)
    switches: ClassVar[tuple[str, ...]] = ("maximize",)
    not_negative: ClassVar[tuple[str, ...]] = (*RuleOptimizer.not_negative, "eps")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "foreach": foreach}
        switches = {"maximize": maximize, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, {**options, **switches})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        self.in_range("rho", options["rho"], 0, 1)

    def tensors(self, options: Group) -> Sequence[str]:
        return self.state_tensors

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        return AdadeltaRule(**{name: options[name] for name in ("lr", "rho", "eps", "weight_decay", "maximize")})
