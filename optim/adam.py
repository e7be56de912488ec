"""Adam and AdamW, and their relatives Adamax, NAdam and RAdam."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from alpha.adaptive_rules import AdamaxRule, NAdamRule, RAdamRule
from alpha.optim.ruled import RuleOptimizer
from alpha.optim.state import Group, State
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule, UpdateRule

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Moments(RuleOptimizer):
    """Base of the optimizers that keep two running moments of the gradient."""

    state_tensors: ClassVar[tuple[str, ...]] = _MOMENTS
    state_required: ClassVar[tuple[str, ...]] = ("step", *_MOMENTS)
    not_negative: ClassVar[tuple[str, ...]] = (*RuleOptimizer.not_negative, "eps")
    unit_pairs: ClassVar[tuple[str, ...]] = ("betas",)
    switches: ClassVar[tuple[str, ...]] = ("maximize", "decoupled_weight_decay")
    later_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def tensors(self, options: Group) -> Sequence[str]:
        return self.state_tensors


class Adam(_Moments):
    """Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, p -= lr m' / (sqrt(v') + eps), ' corrected for bias.

    ``weight_decay`` adds weight_decay * p to the gradient, or is AdamW's if ``decoupled_weight_decay``. ``amsgrad``
    divides by the largest v so far. Kingma & Ba, arXiv 1412.6980; Reddi et al., arXiv 1904.09237.
    """

    state_tensors: ClassVar[tuple[str, ...]] = (*_MOMENTS, "max_exp_avg_sq")
    switches: ClassVar[tuple[str, ...]] = (*_Moments.switches, "amsgrad")
    later_options: ClassVar[dict[str, Any]] = {**_Moments.later_options, "amsgrad": False, "fused": None}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        switches = {"foreach": foreach, "maximize": maximize, "capturable": capturable, "fused": fused}
        decoupled = {"differentiable": differentiable, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**options, **switches, **decoupled})

    def tensors(self, options: Group) -> Sequence[str]:
        return self.state_tensors if options["amsgrad"] else _MOMENTS

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        numbers_of_step = options["eps"], options["weight_decay"], numbers["step"] + 1
        switches = options["decoupled_weight_decay"], options["amsgrad"], options["maximize"]
        return AdamRule(options["lr"], tuple(options["betas"]), *numbers_of_step, *switches)


class AdamW(Adam):
    """Adam with decoupled weight decay: p is first multiplied by 1 - lr * weight_decay.

    Loshchilov & Hutter, arXiv 1711.05101.
    """

    later_options: ClassVar[dict[str, Any]] = {**Adam.later_options, "decoupled_weight_decay": True}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class Adamax(_Moments):
    """Adamax: m = b1 m + (1 - b1) g, u = max(b2 u, |g| + eps), p -= lr / (1 - b1^t) m / u.

    ``weight_decay`` adds weight_decay * p to the gradient. Kingma & Ba, arXiv 1412.6980, section 7.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_inf")
    state_required: ClassVar[tuple[str, ...]] = ("step", *state_tensors)
    switches: ClassVar[tuple[str, ...]] = ("maximize",)
    later_options: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach}
        switches = {"maximize": maximize, "differentiable": differentiable, "capturable": capturable}
        super().__init__(params, {**options, **switches})

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        betas, weight_decay = tuple(options["betas"]), options["weight_decay"]
        return AdamaxRule(options["lr"], betas, options["eps"], weight_decay, numbers["step"] + 1, options["maximize"])


class NAdam(_Moments):
    """NAdam: Adam with Nesterov's momentum, mu_t = b1 (1 - 0.96^(t momentum_decay) / 2), M_t the product of all mu.

    p -= lr (mu_{t+1} m / (1 - M_{t+1}) + (1 - mu_t) g / (1 - M_t)) / (sqrt(v') + eps). ``weight_decay`` as Adam's, or
    AdamW's if ``decoupled_weight_decay``. Dozat, ICLR 2016 workshop.
    """

    state_required: ClassVar[tuple[str, ...]] = (*_Moments.state_required, "mu_product")
    not_negative: ClassVar[tuple[str, ...]] = (*_Moments.not_negative, "momentum_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        decay = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        switches = {"maximize": maximize, "foreach": foreach, "capturable": capturable}
        super().__init__(params, {**options, **decay, **switches, "differentiable": differentiable})

    def first_numbers(self, options: Group) -> State:
        return {"step": 0, "mu_product": 1.0}

    def next_numbers(self, options: Group, numbers: State) -> State:
        rule = self.rule(options, numbers)
        return {"step": rule.step, "mu_product": rule.mu_product * rule.mu}

    def rule(self, options: Group, numbers: State) -> NAdamRule:
        decay = options["weight_decay"], options["momentum_decay"]
        switches = options["decoupled_weight_decay"], options["maximize"]
        place = numbers["mu_product"], numbers["step"] + 1
        return NAdamRule(options["lr"], tuple(options["betas"]), options["eps"], *decay, *place, *switches)


class RAdam(_Moments):
    """RAdam: Adam whose step is multiplied by how well v is known, and not divided by it in the first few steps.

    ``weight_decay`` as Adam's, or AdamW's if ``decoupled_weight_decay``. Liu et al., arXiv 1908.03265.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        switches = {"maximize": maximize, "foreach": foreach, "capturable": capturable}
        decoupled = {"decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable}
        super().__init__(params, {**options, **switches, **decoupled})

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        betas, step = tuple(options["betas"]), numbers["step"] + 1
        switches = options["decoupled_weight_decay"], options["maximize"]
        return RAdamRule(options["lr"], betas, options["eps"], options["weight_decay"], step, *switches)
