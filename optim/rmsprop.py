"""RMSprop, and Rprop, whose form for batches it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from alpha.adaptive_rules import RpropRule
from alpha.errors import ArgumentError, described
from alpha.optim.arguments import is_number
from alpha.optim.ruled import RuleOptimizer
from alpha.optim.state import Group, State
from alpha.tensor import Tensor
from alpha.update_rules import RMSpropRule, UpdateRule


class RMSprop(RuleOptimizer):
    """RMSprop: v = alpha v + (1 - alpha) g^2, p -= lr g / (sqrt(v) + eps).

    ``centered`` subtracts the square of the gradient's running mean from v; with ``momentum`` the quotient runs
    through a buffer b = momentum b + quotient. Tieleman & Hinton, Coursera lecture 6.5, 2012; Graves, arXiv 1308.0850.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("square_avg", "momentum_buffer", "grad_avg")
    state_required: ClassVar[tuple[str, ...]] = ("square_avg",)
    switches: ClassVar[tuple[str, ...]] = ("centered", "maximize")
    not_negative: ClassVar[tuple[str, ...]] = (*RuleOptimizer.not_negative, "alpha", "eps", "momentum")
    later_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        switches = {"centered": centered, "capturable": capturable, "foreach": foreach, "maximize": maximize}
        super().__init__(params, {**options, **switches, "differentiable": differentiable})

    def tensors(self, options: Group) -> Sequence[str]:
        buffer = ("momentum_buffer",) if options["momentum"] > 0 else ()
        return ("square_avg", *buffer, *(("grad_avg",) if options["centered"] else ()))

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        names = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")
        return RMSpropRule(**{name: options[name] for name in names})


class Rprop(RuleOptimizer):
    """Rprop: each element moves against its gradient's sign, by a size of its own, which starts from ``lr``.

    The size is multiplied by the smaller of ``etas`` where the sign has changed, and the element rests in that step; by
    the larger where it has not. It stays within ``step_sizes``. For gradients of whole data sets. Riedmiller & Braun,
    ICNN 1993.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("prev", "step_size")
    state_required: ClassVar[tuple[str, ...]] = ("step", *state_tensors)
    switches: ClassVar[tuple[str, ...]] = ("maximize",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize}
        super().__init__(params, {**options, "differentiable": differentiable, "capturable": capturable})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        for name in ("etas", "step_sizes"):
            pair = options[name]
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(map(is_number, pair)):
                raise ArgumentError(f"[Rprop] expected {name} as a pair of numbers, got {described(pair)}")
        if not 0 < options["etas"][0] < 1 < options["etas"][1]:
            raise ArgumentError(f"[Rprop] expected etas below and above 1, got {described(options['etas'])}")

    def tensors(self, options: Group) -> Sequence[str]:
        return self.state_tensors

    def rule(self, options: Group, numbers: State) -> UpdateRule:
        etas, sizes = tuple(options["etas"]), tuple(options["step_sizes"])
        return RpropRule(options["lr"], etas, sizes, numbers["step"] == 0, options["maximize"])
