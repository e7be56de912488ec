"""Optimizer steps: the new values of a whole step are computed first, and then copied over the old ones.

The copies may be repeated, so an interrupt finds nothing changed, or has the rest of the step done (``alpha.updates``).
An engine that captures steps (``Engine.recorder``) has to bring its own: here the numbers of a step are not refreshed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from alpha import updates
from alpha.changes import at_once

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor

Copies = Iterable[tuple["Tensor", "Tensor"]]
"""New values, and the tensors that are to hold them."""


def adam_step(
    engine: Engine,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
    plan: updates.Plan | None = None,
) -> None:
    """Adam, or AdamW."""
    do = engine.elementwise
    size, correction, gain1, beta2, gain2, eps, decay, shrink = updates.adam_scalars(
        lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled=decoupled, step=step
    )

    def updated(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Copies:
        g = _decayed(engine, g, decay, p)
        mean = do("add", m, do("mul", do("sub", g, m), gain1))
        square = do("add", do("mul", v, beta2), do("mul", do("mul", g, gain2), g))
        change = do("div", mean, do("add", do("div", do("sqrt", square), correction), eps))
        value = do("sub", do("mul", p, shrink), do("mul", change, size))
        return (value, p), (mean, m), (square, v)

    rows = updates.rows(engine, "adam_step", parameters, gradients, first, second)
    _write([pair for row in rows for pair in updated(*row)], plan)


def sgd_step(
    engine: Engine,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor] | None,
    lr: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    first: bool,
    plan: updates.Plan | None = None,
) -> None:
    """SGD, with momentum or without."""
    do = engine.elementwise
    lr, momentum, gain, decay = updates.sgd_scalars(
        lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay
    )

    def updated(p: Tensor, g: Tensor, b: Tensor | None = None) -> Copies:
        g = _decayed(engine, g, decay, p)
        if b is None:
            return ((do("sub", p, do("mul", g, lr)), p),)
        speed = g if first else do("add", do("mul", b, momentum), do("mul", g, gain))
        change = do("add", g, do("mul", speed, momentum)) if nesterov else speed
        return (do("sub", p, do("mul", change, lr)), p), (speed, b)

    rows = updates.rows(engine, "sgd_step", parameters, gradients, momenta)
    _write([pair for row in rows for pair in updated(*row)], plan)


def rmsprop_step(
    engine: Engine,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    squares: Sequence[Tensor],
    momenta: Sequence[Tensor] | None,
    means: Sequence[Tensor] | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    plan: updates.Plan | None = None,
) -> None:
    """RMSprop, with momentum or without, centered or not."""
    do = engine.elementwise
    lr, alpha, gain, eps, decay, momentum = updates.rmsprop_scalars(
        lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum
    )

    def updated(p: Tensor, g: Tensor, s: Tensor, *more: Tensor) -> Copies:
        g = _decayed(engine, g, decay, p)
        spread = square = do("add", do("mul", s, alpha), do("mul", do("mul", g, gain), g))
        copies = [(square, s)]
        if means is not None:
            mean = do("add", more[-1], do("mul", do("sub", g, more[-1]), gain))
            spread = do("sub", square, do("square", mean))
            copies.append((mean, more[-1]))
        change = do("div", g, do("add", do("sqrt", spread), eps))
        if momenta is not None:
            change = do("add", do("mul", more[0], momentum), change)
            copies.append((change, more[0]))
        return [*copies, (do("sub", p, do("mul", change, lr)), p)]

    rows = updates.rows(engine, "rmsprop_step", parameters, gradients, squares, momenta, means)
    _write([pair for row in rows for pair in updated(*row)], plan)


def _decayed(engine: Engine, g: Tensor, decay: float, p: Tensor) -> Tensor:
    """The gradient with its weight decay; without decay a parameter that is not finite leaves it alone."""
    return g if decay == 0 else engine.elementwise("add", g, engine.elementwise("mul", p, decay))


def _write(copies: Sequence[tuple[Tensor, Tensor]], plan: updates.Plan | None) -> None:
    """Adds the copies to a plan; without one they are made."""
    own = plan or updates.Plan()
    own.launches.append(updates.Launch(at_once, [tensor for _, tensor in copies], copies, ()))
    if plan is None:
        own.make()
