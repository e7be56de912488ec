"""Update rules: what one step of an optimizer does to a parameter and its states, as a formula and as numbers.

``Engine.optimizer_step`` takes any rule. The formula runs on every engine; for the rules that an engine has a kernel
for, it takes the rule's numbers instead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor
    from alpha.updates import Row

NewValues = Iterable[tuple["Tensor", "Tensor"]]
"""Tensors of new values, each with the tensor that is to hold them."""


class UpdateRule(ABC):
    """The numbers of one step. A rule's tensors come in rows: a parameter, its gradient, and its states."""

    __slots__ = ()

    @property
    @abstractmethod
    def states(self) -> int:
        """How many states a parameter has."""

    @abstractmethod
    def updated(self, engine: Engine, row: Row) -> NewValues:
        """What a row's parameter and states become, computed by ``engine``; the row itself is only read."""


class AdamNumbers(NamedTuple):
    """Adam's numbers as kernels take them: p = shrink p - step_size m / (sqrt(v) / correction + eps).

    Attributes:
        step_size: lr, corrected for the bias of the first moment.
        correction: the root of what the second moment lacks.
        gain1: the share of the gradient in the first moment.
        beta2: how much of the second moment is kept.
        gain2: the share of the gradient's square in the second moment.
        eps: added to the root of the second moment.
        decay: the share of the parameter that is added to the gradient.
        shrink: what the parameter is multiplied by.
    """

    step_size: float
    correction: float
    gain1: float
    beta2: float
    gain2: float
    eps: float
    decay: float
    shrink: float


@dataclass(slots=True)
class AdamRule(UpdateRule):
    """Adam, or AdamW. A row's states are the first and the second moment. Kingma & Ba, arXiv 1412.6980.

    Attributes:
        lr: the learning rate.
        betas: how much of the first and of the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: the share of the parameter that is added to the gradient or, decoupled, lr times taken off.
        step: the number of this step, from 1.
        decoupled: whether the weight decay is AdamW's. Loshchilov & Hutter, arXiv 1711.05101.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    step: int
    decoupled: bool = False

    @property
    def states(self) -> int:
        return 2

    def numbers(self) -> AdamNumbers:
        """The bias corrections computed once, in float64."""
        beta1, beta2 = self.betas
        return AdamNumbers(
            self.lr / (1 - beta1**self.step),
            math.sqrt(1 - beta2**self.step),
            1 - beta1,
            beta2,
            1 - beta2,
            self.eps,
            0.0 if self.decoupled else self.weight_decay,
            1 - self.lr * self.weight_decay if self.decoupled else 1.0,
        )

    def updated(self, engine: Engine, row: Row) -> NewValues:
        do, (p, g, m, v) = engine.elementwise, row
        size, correction, gain1, beta2, gain2, eps, decay, shrink = self.numbers()
        g = _decayed(engine, g, decay, p)
        mean = do("add", m, do("mul", do("sub", g, m), gain1))
        square = do("add", do("mul", v, beta2), do("mul", do("mul", g, gain2), g))
        change = do("div", mean, do("add", do("div", do("sqrt", square), correction), eps))
        value = do("sub", do("mul", p, shrink), do("mul", change, size))
        return (value, p), (mean, m), (square, v)


class SGDNumbers(NamedTuple):
    """SGD's numbers as kernels take them.

    Attributes:
        lr: the learning rate.
        momentum: how much of the buffer is kept.
        gain: the share of the gradient that goes into the buffer.
        decay: the share of the parameter that is added to the gradient.
    """

    lr: float
    momentum: float
    gain: float
    decay: float


@dataclass(slots=True)
class SGDRule(UpdateRule):
    """SGD in PyTorch's form. A row's state, with momentum, is the momentum's buffer.

    Attributes:
        lr: the learning rate.
        momentum: how much of the buffer a step keeps; 0 for no buffer.
        dampening: the share of the gradient that stays out of the buffer.
        weight_decay: the share of the parameter that is added to the gradient.
        nesterov: whether the parameter moves by gradient + momentum * buffer.
        first: whether the buffer starts at the gradient.
    """

    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool = False
    first: bool = False

    @property
    def states(self) -> int:
        return int(self.momentum != 0)

    def numbers(self) -> SGDNumbers:
        """As kernels take them."""
        return SGDNumbers(self.lr, self.momentum, 1 - self.dampening, self.weight_decay)

    def updated(self, engine: Engine, row: Row) -> NewValues:
        do, (p, g, *buffers) = engine.elementwise, row
        lr, momentum, gain, decay = self.numbers()
        g = _decayed(engine, g, decay, p)
        if not buffers:
            return ((do("sub", p, do("mul", g, lr)), p),)
        (b,) = buffers
        speed = g if self.first else do("add", do("mul", b, momentum), do("mul", g, gain))
        change = do("add", g, do("mul", speed, momentum)) if self.nesterov else speed
        return (do("sub", p, do("mul", change, lr)), p), (speed, b)


class RMSpropNumbers(NamedTuple):
    """RMSprop's numbers as kernels take them.

    Attributes:
        lr: the learning rate.
        alpha: how much of the running means is kept.
        gain: the share of the gradient, or of its square, in the running means.
        eps: added to the root of the mean of squares.
        decay: the share of the parameter that is added to the gradient.
        momentum: how much of the momentum's buffer is kept.
    """

    lr: float
    alpha: float
    gain: float
    eps: float
    decay: float
    momentum: float


@dataclass(slots=True)
class RMSpropRule(UpdateRule):
    """RMSprop in PyTorch's form. A row's states are the mean of squares, then buffer and mean where there are any.

    Attributes:
        lr: the learning rate.
        alpha: how much of the running means a step keeps.
        eps: added to the root of the mean of squares.
        weight_decay: the share of the parameter that is added to the gradient.
        momentum: how much of the momentum's buffer a step keeps; 0 for no buffer.
        centered: whether a running mean of the gradient is kept, whose square is taken off the mean of squares.
    """

    lr: float
    alpha: float
    eps: float
    weight_decay: float
    momentum: float = 0.0
    centered: bool = False

    @property
    def states(self) -> int:
        return 1 + (self.momentum != 0) + self.centered

    def numbers(self) -> RMSpropNumbers:
        """As kernels take them."""
        return RMSpropNumbers(self.lr, self.alpha, 1 - self.alpha, self.eps, self.weight_decay, self.momentum)

    def updated(self, engine: Engine, row: Row) -> NewValues:
        do, (p, g, s, *others) = engine.elementwise, row
        lr, alpha, gain, eps, decay, momentum = self.numbers()
        g = _decayed(engine, g, decay, p)
        spread = square = do("add", do("mul", s, alpha), do("mul", do("mul", g, gain), g))
        yield square, s
        if self.centered:
            mean = do("add", others[-1], do("mul", do("sub", g, others[-1]), gain))
            # With one rounding, as kernels have it, a finite mean's square takes nothing off an infinite mean.
            infinite = do("logical_and", do("eq", square, math.inf), do("isfinite", mean))
            spread = do("where", infinite, square, do("sub", square, do("square", mean)))
            yield mean, others[-1]
        change = do("div", g, do("add", do("sqrt", spread), eps))
        if momentum != 0:
            change = do("add", do("mul", others[0], momentum), change)
            yield change, others[0]
        yield do("sub", p, do("mul", change, lr)), p


def _decayed(engine: Engine, g: Tensor, decay: float, p: Tensor) -> Tensor:
    """The gradient with its weight decay; without decay a parameter that is not finite leaves it alone."""
    return g if decay == 0 else engine.elementwise("add", g, engine.elementwise("mul", p, decay))
