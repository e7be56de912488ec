"""Adafactor: Adam's second moment as the product of a column and a row, so that its state is small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from alpha import functions as F
from alpha import steps
from alpha.autograd import no_grad
from alpha.changes import at_once
from alpha.dtypes import finfo
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.optim.arguments import is_number
from alpha.optim.optimizer import Optimizer, gradients
from alpha.optim.ruled import plain_options
from alpha.optim.state import Group
from alpha.tensor import Tensor
from alpha.updates import Launch, Plan


class Adafactor(Optimizer):
    """Adafactor: p -= a u / max(1, rms(u) / d), where u is the gradient over the root of an estimate of its square.

    The estimate of a parameter of two axes or more is the product of means over its rows and over its columns (the last
    two axes), which alone are kept; that of a vector is a mean itself. A mean takes t^beta2_decay of each new square.
    a is min(lr, 1 / sqrt(t)) max(eps[1], rms(p)). Weight decay is AdamW's. Until the end of a step all new values are
    held beside the old ones. Shazeer & Stern, arXiv 1804.04235.

    Args:
        eps: what the estimate is at least, its root (None: the dtype's eps); and what rms(p) is.
        d: the largest root mean square of u.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("row_var", "col_var", "variance")
    state_required: ClassVar[tuple[str, ...]] = ("step",)
    switches: ClassVar[tuple[str, ...]] = ("maximize",)
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "d")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**options, "foreach": foreach, "maximize": maximize})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        eps, decay = options["eps"], options["beta2_decay"]
        pair = isinstance(eps, tuple | list) and len(eps) == 2
        if not pair or not all(is_number(one) and one >= 0 for one in (eps[0] or 0.0, eps[1])):
            raise ArgumentError(f"[Adafactor] expected eps as a pair of numbers >= 0, got {described(eps)}")
        if not is_number(decay) or decay > 0:
            raise ArgumentError(f"[Adafactor] expected beta2_decay <= 0, got {described(decay)}")
        if options["d"] < 1:
            raise ArgumentError(f"[Adafactor] expected d >= 1, got {options['d']}")

    def state_shape(self, param: Tensor, key: str) -> tuple[int, ...]:
        if key == "variance":
            return param.shape
        lost = -1 if key == "row_var" else -2
        axis = param.ndim + lost
        return (*param.shape[:axis], 1, *param.shape[axis + 1 :])

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        steps.refuse(engine, "Adafactor's numbers of a step", "step outside the graph")
        current = plain_options(options)
        with no_grad():
            for param, grad in zip(params, gradients(params), strict=True):
                self._prepare_one(plan, param, -grad if options["maximize"] else grad, current)

    def _prepare_one(self, plan: Plan, param: Tensor, grad: Tensor, options: Group) -> None:
        """Computes the new values of a parameter and its state, and adds copying them to the plan."""
        step = int(self.state[param]["step"]) + 1 if param in self.state else 1
        taken = float(step) ** options["beta2_decay"]
        least = options["eps"][0]
        least = float(finfo(param.dtype).eps) if least is None else least
        keys = ("row_var", "col_var") if param.ndim > 1 else ("variance",)
        old = self.prepared(plan, param, *keys, step=step)
        if param.ndim > 1:
            means = [(grad * grad).mean(axis, keepdim=True) for axis in (-1, -2)]
        else:
            means = [grad * grad]
        new = [kept + (mean - kept) * taken for kept, mean in zip(old, means, strict=True)]
        square = new[0]
        if param.ndim > 1:
            square = new[0] @ new[1] / F.clamp(new[0].mean(-2, keepdim=True), least)
        update = grad / F.clamp(square, least * least).sqrt()
        length = F.clamp(_rms(param), options["eps"][1]) * min(options["lr"], 1 / step**0.5)
        length = length / F.clamp(_rms(update) / options["d"], 1.0)
        kept = param.detach() * (1 - options["lr"] * options["weight_decay"]) if options["weight_decay"] else param
        back = [(kept - update * length, param), *zip(new, old, strict=True)]
        plan.launches.append(Launch(at_once, [tensor for _, tensor in back], back, []))


def _rms(x: Tensor) -> Tensor:
    """The root of the mean square."""
    return (x.detach() * x.detach()).mean().sqrt()
