"""Muon: momentum whose matrices are made orthogonal before a step."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, ClassVar

from alpha import functions as F
from alpha.autograd import no_grad
from alpha.changes import at_once
from alpha.dtypes import is_float
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.nn.arguments import choice
from alpha.optim.arguments import is_finite
from alpha.optim.optimizer import Optimizer, gradients
from alpha.optim.ruled import plain_options
from alpha.optim.state import Group
from alpha.tensor import Tensor
from alpha.updates import Launch, Plan

Coefficients = tuple[float, float, float]

COEFFICIENTS: Coefficients = (3.4445, -4.7750, 2.0315)
"""Jordan's a, b and c: a slope at 0 that is as steep as the values at 1 allow, which stay within 0.3 of 1."""

_BATCH_BYTES = 1 << 26
"""Most bytes of gradients that are made orthogonal as one batch, unless one matrix alone has more."""
_MOST_STEPS = 100


class Muon(Optimizer):
    """Momentum, made orthogonal: all directions that a layer's inputs and outputs span move by about the same length.

    For weights of hidden layers, with two axes or more; a filter (OC, FH, FW, IC) is a matrix of OC rows. Other
    parameters belong to another optimizer. With the gradient g of a matrix p of r rows and c columns::

        m = momentum m + (1 - momentum) g               from m = 0
        d = momentum m + (1 - momentum) g               nesterov; else d = m
        p = p - lr weight_decay p - lr sqrt(max(1, r / c)) orthogonalised(d)

    Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024. Names and defaults are those of
    ``torch.optim.Muon``, whose iteration computes in bfloat16. Here it computes in the parameter's dtype, and all
    parameters of one shape are one batch. Until the end of a step all new values are held beside the old ones.

    Args:
        params: tensors of two axes or more, or dicts with ``params`` and the options in which a group differs.
        lr: the learning rate.
        weight_decay: lr times this share of a parameter is taken off it.
        momentum: how much of the momentum a step keeps.
        nesterov: whether the direction looks ahead, as above.
        ns_coefficients, ns_steps, eps: see ``orthogonalised``.
        adjust_lr_fn: the factor of lr: ``"original"``, or None: sqrt(max(1, r / c)); ``"match_rms_adamw"``:
            0.2 sqrt(max(r, c)), with which AdamW's learning rates fit (Liu et al., arXiv 2502.16982).
        rescale: scale a parameter to the Frobenius norm sqrt(r) before each step. For filters before a BatchNorm, whose
            result does not depend on their scale: lr alone then says how far a step turns them.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    state_required: ClassVar[tuple[str, ...]] = state_tensors
    switches: ClassVar[tuple[str, ...]] = ("nesterov", "rescale")
    not_negative: ClassVar[tuple[str, ...]] = (*Optimizer.not_negative, "eps")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Coefficients = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        rescale: bool = False,
    ) -> None:
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        iteration = {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps}
        super().__init__(params, {**options, **iteration, "adjust_lr_fn": adjust_lr_fn, "rescale": rescale})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        self.below_one("momentum", options["momentum"])
        _check_iteration(self._name, options["ns_coefficients"], options["ns_steps"])
        if options["adjust_lr_fn"] is not None:
            choice(options["adjust_lr_fn"], ("original", "match_rms_adamw"), "adjust_lr_fn", self._name)

    def _check_params(self, params: list[Any]) -> None:
        super()._check_params(params)
        for param in params:
            if param.ndim < 2:
                raise ArgumentError(
                    f"[{self._name}] expected parameters of two axes or more, got shape {param.shape}: give biases and "
                    "other vectors to another optimizer"
                )

    def _structure(self) -> Hashable:
        """The options too: replays of a captured step repeat the numbers that it computed with."""
        return self._changes, [{key: value for key, value in g.items() if key != "params"} for g in self.param_groups]

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        current = plain_options(options)
        with no_grad():
            for batch in _batches(params):
                self._prepare_batch(plan, batch, current)

    def _prepare_batch(self, plan: Plan, params: list[Tensor], options: Group) -> None:
        """Computes the new values of parameters that are matrices of one shape, and adds copying them to the plan."""
        old = [self.prepared(plan, param, "momentum_buffer")[0] for param in params]
        rows, momentum = params[0].shape[0], options["momentum"]
        grads = F.stack([_matrix(grad) for grad in _checked(params)])
        new = _momentum(F.stack([_matrix(tensor) for tensor in old]), grads, momentum)
        direction = _momentum(grads, new, 1 - momentum) if options["nesterov"] else new
        direction = orthogonalised(direction, options["ns_coefficients"], options["ns_steps"], options["eps"])
        lr = options["lr"]
        length, keep = lr * _adjustment(direction, options["adjust_lr_fn"]), 1 - lr * options["weight_decay"]
        back: list[tuple[Tensor, Tensor]] = []
        for i, param in enumerate(params):
            share: Any = keep
            if options["rescale"]:
                share = keep * math.sqrt(rows) / F.clamp(F.norm(_matrix(param)), options["eps"])
            back.append((_moved(param, direction[i].reshape(param.shape), share, length), param))
            back.append((new[i].reshape(param.shape), old[i]))
        plan.launches.append(Launch(at_once, [tensor for _, tensor in back], back, []))


def orthogonalised(
    x: Tensor, ns_coefficients: Coefficients = COEFFICIENTS, ns_steps: int = 5, eps: float = 1e-7
) -> Tensor:
    """Each matrix U S V' of a batch as about U V', by Newton-Schulz iterations, which are products of matrices alone.

    X = X / max(||X||, eps), the Frobenius norm, and then ``ns_steps`` times X = a X + (b X X' + c (X X')²) X: singular
    values go through the polynomial a s + b s³ + c s⁵, and stay apart from 1 by up to 0.3 with Jordan's a, b and c.

    Args:
        x: (..., r, c), float.
        ns_coefficients: a, b and c.
        ns_steps: how many iterations.
        eps: what smaller norms are replaced by.
    """
    if not isinstance(x, Tensor) or not is_float(x.dtype):
        raise DtypeError(f"[orthogonalised] expected a float tensor, got {described(x)}")
    if x.ndim < 2:
        raise ShapeError(f"[orthogonalised] expected matrices (..., r, c), got shape {x.shape}")
    _check_iteration("orthogonalised", ns_coefficients, ns_steps)
    tall = x.shape[-2] > x.shape[-1]
    x = F.transpose(x, -2, -1) if tall else x
    x = x / F.clamp(F.norm(x, dim=(-2, -1), keepdim=True), eps)
    a, b, c = ns_coefficients
    for _ in range(ns_steps):
        gram = x @ F.transpose(x, -2, -1)
        x = _weighted(x, _weighted(gram, gram @ gram, b, c) @ x, a, 1.0)
    return F.transpose(x, -2, -1) if tall else x


@pointwise
def _momentum(old: Any, new: Any, kept: Any) -> Any:
    return old * kept + new * (1 - kept)


@pointwise
def _weighted(x: Any, y: Any, a: Any, b: Any) -> Any:
    return x * a + y * b


@pointwise
def _moved(param: Any, direction: Any, share: Any, length: Any) -> Any:
    return param * share - direction * length


def _adjustment(x: Tensor, name: str | None) -> float:
    """The factor of the learning rate for matrices (..., r, c)."""
    rows, columns = x.shape[-2:]
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


def _matrix(x: Tensor) -> Tensor:
    """A parameter, or what is shaped as one, as its rows."""
    return x.detach().reshape((x.shape[0], x.numel() // x.shape[0]))


def _checked(params: list[Tensor]) -> list[Tensor]:
    """The parameters' gradients; an error unless each lives where its parameter does and is shaped as it."""
    found = gradients(params)
    for param, grad in zip(params, found, strict=True):
        if grad.shape != param.shape:
            raise ShapeError(f"[Muon] expected gradients shaped as their parameter {param.shape}, got {grad.shape}")
        if grad.dtype != param.dtype:
            raise DtypeError(f"[Muon] expected gradients of their parameter's dtype {param.dtype}, got {grad.dtype}")
    return found


def _batches(params: list[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters that are not empty: those of one dtype and matrix's shape, in batches of bounded bytes."""
    kinds: dict[Hashable, list[Tensor]] = {}
    for param in params:
        if param.numel():
            kinds.setdefault((param.shape[0], param.numel(), param.dtype), []).append(param)
    for alike in kinds.values():
        most = max(1, _BATCH_BYTES // (alike[0].numel() * alike[0].dtype.itemsize))
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _check_iteration(function: str, coefficients: Any, steps: Any) -> None:
    numbers = list(coefficients) if isinstance(coefficients, tuple | list) else []
    if len(numbers) != 3 or not all(map(is_finite, numbers)):
        raise ArgumentError(
            f"[{function}] expected ns_coefficients as three finite numbers, got {described(coefficients)}"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps < _MOST_STEPS:
        raise ArgumentError(f"[{function}] expected ns_steps as an int in 0..{_MOST_STEPS - 1}, got {described(steps)}")
