"""L-BFGS: a quasi-Newton method that remembers the last few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from alpha import functions as F
from alpha.autograd import no_grad
from alpha.changes import at_once, putting
from alpha.errors import ArgumentError, described
from alpha.nn.arguments import choice
from alpha.optim.arguments import is_number, plain
from alpha.optim.line_search import Point, strong_wolfe
from alpha.optim.optimizer import Optimizer
from alpha.optim.state import Group, State
from alpha.tensor import Tensor

_LEAST_CURVATURE = 1e-10
"""A step whose product with the gradient's change is not larger is not remembered."""


class LBFGS(Optimizer):
    """L-BFGS for all parameters as one vector; ``step(closure)`` calls the closure again and again.

    One step makes up to ``max_iter`` iterations: p += t d, where d is minus the gradient times an estimate of the
    inverse Hessian made of the last ``history_size`` steps, and t is ``lr`` (in the first iteration at most lr over the
    gradient's 1-norm) or, with ``line_search_fn="strong_wolfe"``, what that search finds. There is one parameter group.
    An interrupt may find parameters between two iterations. Nocedal, Math. of Computation 35, 1980.

    Args:
        max_iter: iterations of a step.
        max_eval: calls of the closure of a step, after which it ends; None for max_iter * 5 / 4.
        tolerance_grad: a step ends where no element of the gradient is larger.
        tolerance_change: a step ends where no parameter, or the loss, changes by more.
        history_size: steps that are remembered.
        line_search_fn: None or "strong_wolfe".
    """

    not_negative: ClassVar[tuple[str, ...]] = ("lr", "tolerance_grad", "tolerance_change")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if max_eval is None and is_number(max_iter):
            max_eval = max_iter * 5 // 4
        counts = {"lr": lr, "max_iter": max_iter, "max_eval": max_eval}
        tolerances = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        super().__init__(
            params, {**counts, **tolerances, "history_size": history_size, "line_search_fn": line_search_fn}
        )

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        for name in ("max_iter", "max_eval", "history_size"):
            if type(options[name]) is not int or options[name] < 1:
                raise ArgumentError(f"[LBFGS] expected {name} as an int >= 1, got {described(options[name])}")
        if options["line_search_fn"] is not None:
            choice(options["line_search_fn"], ("strong_wolfe",), "line_search_fn", "LBFGS")

    def _check_params(self, params: list[Any]) -> None:
        super()._check_params(params)
        if self.param_groups:
            raise ArgumentError("[LBFGS] expected one parameter group, got two: it has one step for all parameters")
        kinds = {(param.engine.name, param.dtype) for param in params}
        if len(kinds) > 1:
            raise ArgumentError(f"[LBFGS] expected parameters of one dtype on one engine, got {len(kinds)} kinds")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes up to ``max_iter`` iterations; returns the first loss that the closure returned."""
        if closure is None:
            raise ArgumentError(
                "[LBFGS.step] expected a function that computes the loss and its gradients, got none: it is evaluated "
                "several times a step"
            )
        first = self.evaluated(closure)
        with no_grad():
            _Run(self, closure, self.param_groups[0], float(plain(first))).run()
        return first

    def _fit_entry(self, param: Tensor, values: Mapping[Any, Any]) -> None:
        length = sum(one.numel() for one in self._all())
        absent = [name for name in _STATE if name not in values]
        if absent:
            raise self._misfit(f"a state with {', '.join(_STATE)}", f"none for {', '.join(absent)}")
        vectors = [values["d"], values["prev_flat_grad"], *values["old_dirs"], *values["old_stps"]]
        shapes = [tuple(getattr(vector, "shape", ())) for vector in vectors if vector is not None]
        if any(shape != (length,) for shape in shapes):
            raise self._misfit(f"vectors of {length} numbers", f"shapes {shapes}")
        if len({len(values[name]) for name in ("old_dirs", "old_stps", "ro")}) > 1:
            raise self._misfit("as many old_dirs as old_stps and ro", "others")


_STATE = (
    "func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
)  # fmt: skip
"""What LBFGS remembers, under its first parameter, by PyTorch's names."""


class _Run:
    """One step of LBFGS."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], group: Group, loss: float) -> None:
        self.optimizer, self.closure, self.options, self.loss = optimizer, closure, group, loss
        self.lr = float(plain(group["lr"]))
        self.params: list[Tensor] = group["params"]
        kept: State = optimizer.state.get(self.params[0], {})
        self.evaluations, self.total_evaluations = 1, int(plain(kept.get("func_evals", 0))) + 1
        self.iterations = int(plain(kept.get("n_iter", 0)))
        self.direction: Tensor | None = kept.get("d")
        self.t = float(plain(kept.get("t", 0.0)))
        self.scale = float(plain(kept.get("H_diag", 1.0)))
        self.last_gradient: Tensor | None = kept.get("prev_flat_grad")
        self.last_loss = float(plain(kept.get("prev_loss", loss)))
        self.changes: list[Tensor] = list(kept.get("old_dirs", []))
        self.moves: list[Tensor] = list(kept.get("old_stps", []))
        self.weights: list[float] = [float(plain(one)) for one in kept.get("ro", [])]
        self.gradient = self._gathered()

    def run(self) -> None:
        """Iterates until the gradient or the changes are small, or the evaluations used up."""
        if _largest(self.gradient) > self.options["tolerance_grad"]:
            for left in range(self.options["max_iter"] - 1, -1, -1):
                if not self._iterate(is_last=left == 0):
                    break
        self._keep()

    def _iterate(self, is_last: bool) -> bool:
        """One iteration; whether another is to follow."""
        self.iterations += 1
        direction = self._next_direction()
        self.direction = direction
        self.last_gradient, self.last_loss = self.gradient, self.loss
        self.t = self.lr * (min(1.0, 1.0 / float(self.gradient.abs().sum())) if self.iterations == 1 else 1.0)
        slope = _dot(self.gradient, direction)
        if slope > -self.options["tolerance_change"]:
            return False
        if self.options["line_search_fn"] is None:
            self._move([p.detach().clone() for p in self.params], self.t)
            if is_last:
                return False
            self._evaluate()
            used = 1
        else:
            used = self._search(slope)
        self.evaluations, self.total_evaluations = self.evaluations + used, self.total_evaluations + used
        options, change = self.options, self.options["tolerance_change"]
        return not (
            is_last
            or self.evaluations >= options["max_eval"]
            or _largest(self.gradient) <= options["tolerance_grad"]
            or _largest(direction * self.t) <= change
            or abs(self.loss - self.last_loss) < change
        )

    def _next_direction(self) -> Tensor:
        """Minus the gradient times the estimate of the inverse Hessian, after taking in the last move."""
        if self.iterations == 1 or self.direction is None or self.last_gradient is None:
            self.changes, self.moves, self.weights, self.scale = [], [], [], 1.0
            return -self.gradient
        change, move = self.gradient - self.last_gradient, self.direction * self.t
        curvature = _dot(change, move)
        if curvature > _LEAST_CURVATURE:
            size = self.options["history_size"] - 1
            first = max(0, len(self.changes) - size)
            self.changes = [*self.changes[first:], change]
            self.moves = [*self.moves[first:], move]
            self.weights = [*self.weights[first:], 1.0 / curvature]
            self.scale = curvature / _dot(change, change)
        history = list(zip(self.changes, self.moves, self.weights, strict=True))
        found, shares = -self.gradient, []
        for change, move, weight in reversed(history):
            shares.append(_dot(move, found) * weight)
            found = found - change * shares[-1]
        found = found * self.scale
        for (change, move, weight), share in zip(history, reversed(shares), strict=True):
            found = found + move * (share - _dot(change, found) * weight)
        return found

    def _search(self, slope: float) -> int:
        """Moves as far as a line search says; the number of evaluations."""
        start = [p.detach().clone() for p in self.params]
        direction = self.direction
        assert direction is not None

        def evaluate(t: float) -> Point:
            self._move(start, t)
            self._evaluate()
            return Point(t, self.loss, self.gradient, _dot(self.gradient, direction))

        here = Point(0.0, self.loss, self.gradient, slope)
        left = self.options["max_eval"] - self.evaluations
        point, used = strong_wolfe(evaluate, here, self.t, _largest(direction), left)
        self.t, self.loss, self.gradient = point.t, point.loss, point.gradient
        self._move(start, point.t)
        return used

    def _evaluate(self) -> None:
        self.loss = float(plain(self.optimizer.evaluated(self.closure)))
        self.gradient = self._gathered()

    def _gathered(self) -> Tensor:
        """All gradients as one vector; zeros for a parameter that has none."""
        return F.cat([F.reshape(F.zeros_like(p) if p.grad is None else p.grad, (-1,)) for p in self.params]).detach()

    def _move(self, start: list[Tensor], t: float) -> None:
        """Sets the parameters to their start plus t times the direction."""
        assert self.direction is not None
        place = 0
        for param, first in zip(self.params, start, strict=True):
            part = self.direction[place : place + param.numel()]
            param.copy_(first + part.reshape(param.shape) * t)
            place += param.numel()

    def _keep(self) -> None:
        """Enters all into the optimizer's state."""
        numbers = {"func_evals": self.total_evaluations, "n_iter": self.iterations, "t": self.t, "H_diag": self.scale}
        vectors = {"d": self.direction, "prev_flat_grad": self.last_gradient, "prev_loss": self.last_loss}
        history = {"old_dirs": self.changes, "old_stps": self.moves, "ro": self.weights}
        at_once([putting(self.optimizer.state, self.params[0], {**numbers, **vectors, **history})])


def _dot(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum())


def _largest(vector: Tensor) -> float:
    """The largest element by size."""
    return float(vector.abs().max()) if vector.numel() else 0.0
