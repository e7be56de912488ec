"""Update rules: what one step of an optimizer does to a parameter and its states, as one expression.

``Engine.optimizer_step`` takes any rule. An engine makes a kernel of the rule's formula that updates a whole list of
parameters in place; an engine without one computes it as it computes ``alpha.pointwise``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alpha.expressions import rules, symbols
from alpha.expressions.program import Program


class UpdateRule(ABC):
    """The numbers of one step, and its formula. A rule's tensors come in rows: a parameter, its gradient, its states.

    A whole rule, of signs of the gradient with a momentum::

        @dataclass
        class SignRule(UpdateRule):
            lr: float
            momentum: float
            nesterov: bool
            states = 1

            def formula(self, row):
                p, g, b = row
                speed = b * self.momentum + g
                change = g + speed * self.momentum if self.nesterov else speed
                return p - change.sign() * self.lr, speed
    """

    __slots__ = ()

    @property
    @abstractmethod
    def states(self) -> int:
        """How many states a parameter has."""

    @abstractmethod
    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        """The new parameter and the new states, in the row's order, of one element of a row's tensors.

        It is written as a function for ``alpha.pointwise`` is, and traced once. What it reads of the rule is then one
        of two things. Numbers, also those in tuples and of properties, are arguments of the kernel: others compile
        nothing, and parts made of them alone are computed in float64, once a step. Bools, None and text are what it may
        decide on by ``if``: for each choice that occurs it is traced anew. Where a number decides, give the rule a
        property that is a bool, such as ``decays`` of the rules below.
        """

    def traced(self) -> tuple[Program, tuple[float, ...]]:
        """The formula as a program, and the numbers that it takes in this step."""
        return rules.traced(self)


class DescendingRule(UpdateRule):
    """A rule with a weight decay that goes down the gradient or, to maximize, up."""

    __slots__ = ()

    weight_decay: float
    maximize: bool

    @property
    def decays(self) -> bool:
        """Whether there is weight decay: without, a parameter that is not finite leaves its gradient alone."""
        return self.weight_decay != 0

    def descent(self, g: Any) -> Any:
        """The gradient of what is minimised."""
        return -g if self.maximize else g

    def slope(self, p: Any, g: Any) -> Any:
        """The gradient with the weight decay's part."""
        g = self.descent(g)
        return g + p * self.weight_decay if self.decays else g


class MomentsRule(DescendingRule):
    """A rule of Adam's kind: of the first and second moment, whose weight decay may be AdamW's.

    AdamW's decay takes lr times the share off the parameter. Loshchilov & Hutter, arXiv 1711.05101.
    """

    __slots__ = ()

    lr: float
    betas: tuple[float, float]
    decoupled: bool

    @property
    def states(self) -> int:
        return 2

    def decayed(self, p: Any, g: Any) -> tuple[Any, Any]:
        """The parameter and the gradient after weight decay."""
        if self.decays and self.decoupled:
            return p * (1 - self.lr * self.weight_decay), self.descent(g)
        return p, self.slope(p, g)

    def moments(self, g: Any, m: Any, v: Any) -> tuple[Any, Any]:
        """The moments after a gradient."""
        beta1, beta2 = self.betas
        return m + (g - m) * (1 - beta1), v * beta2 + g * (1 - beta2) * g


@dataclass(slots=True)
class AdamRule(MomentsRule):
    """Adam, or AdamW. A row's states are the first and the second moment, with amsgrad also the latter's maximum.

    Kingma & Ba, arXiv 1412.6980.

    Attributes:
        lr: the learning rate.
        betas: how much of the first and of the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: the share of the parameter that is added to the gradient or, decoupled, lr times taken off.
        step: the number of this step, from 1.
        decoupled: whether the weight decay is AdamW's.
        amsgrad: whether the largest second moment so far divides. Reddi et al., arXiv 1904.09237.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    step: int
    decoupled: bool = False
    amsgrad: bool = False
    maximize: bool = False

    @property
    def states(self) -> int:
        return 2 + self.amsgrad

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, m, v, *maxima = row
        beta1, beta2 = self.betas
        p, g = self.decayed(p, g)
        mean, square = self.moments(g, m, v)
        correction = 1 / (1 - beta2**self.step) ** 0.5
        largest = [symbols.apply("maximum", maximum, square) for maximum in maxima]
        spread = largest[0] if largest else square
        change = mean / (spread**0.5 * correction + self.eps)
        return p - change * (self.lr / (1 - beta1**self.step)), mean, square, *largest


@dataclass(slots=True)
class SGDRule(DescendingRule):
    """SGD in PyTorch's form. A row's state, with momentum, is the momentum's buffer.

    Attributes:
        lr: the learning rate.
        momentum: how much of the buffer a step keeps; 0 for no buffer.
        dampening: the share of the gradient that stays out of the buffer.
        weight_decay: the share of the parameter that is added to the gradient.
        nesterov: whether the parameter moves by gradient + momentum * buffer.
        first: whether the buffer starts at the gradient.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool = False
    first: bool = False
    maximize: bool = False

    @property
    def states(self) -> int:
        return int(self.momentum != 0)

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, *buffers = row
        g = self.slope(p, g)
        if not buffers:
            return (p - g * self.lr,)
        (b,) = buffers
        speed = g if self.first else b * self.momentum + g * (1 - self.dampening)
        change = g + speed * self.momentum if self.nesterov else speed
        return p - change * self.lr, speed


@dataclass(slots=True)
class RMSpropRule(DescendingRule):
    """RMSprop in PyTorch's form. A row's states are the mean of squares, then buffer and mean where there are any.

    Attributes:
        lr: the learning rate.
        alpha: how much of the running means a step keeps.
        eps: added to the root of the mean of squares.
        weight_decay: the share of the parameter that is added to the gradient.
        momentum: how much of the momentum's buffer a step keeps; 0 for no buffer.
        centered: whether a running mean of the gradient is kept, whose square is taken off the mean of squares.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    alpha: float
    eps: float
    weight_decay: float
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = False

    @property
    def states(self) -> int:
        return 1 + self.moves + self.centered

    @property
    def moves(self) -> bool:
        """Whether there is a momentum."""
        return self.momentum != 0

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, s, *others = row
        g = self.slope(p, g)
        gain = 1 - self.alpha
        spread = square = s * self.alpha + g * gain * g
        means = []
        if self.centered:
            mean = others[-1] + (g - others[-1]) * gain
            # As in one rounding, a finite mean's square takes nothing off an infinite mean of squares.
            is_infinite = (square == math.inf) & mean.isfinite()
            spread = symbols.apply("where", is_infinite, square, square - mean * mean)
            means.append(mean)
        change = g / (spread**0.5 + self.eps)
        buffers = []
        if self.moves:
            change = others[0] * self.momentum + change
            buffers.append(change)
        return p - change * self.lr, square, *buffers, *means
