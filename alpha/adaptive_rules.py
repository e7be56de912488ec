"""Update rules that adapt how far each element moves: Adagrad, Adadelta, Adam's relatives and Rprop; and ASGD's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alpha.expressions import symbols
from alpha.update_rules import DescendingRule, MomentsRule


@dataclass(slots=True)
class AdagradRule(DescendingRule):
    """Adagrad. A row's state is the sum of the gradient's squares. Duchi et al., JMLR 12, 2011.

    Attributes:
        lr: the learning rate.
        lr_decay: what the rate is divided by grows by so much each step.
        eps: added to the root of the sum.
        weight_decay: the share of the parameter that is added to the gradient.
        initial: what the sum starts from.
        step: the number of this step, from 1.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    lr_decay: float
    eps: float
    weight_decay: float
    initial: float
    step: int
    maximize: bool = False

    @property
    def states(self) -> int:
        return 1

    @property
    def first(self) -> bool:
        """Whether the sum starts in this step."""
        return self.step == 1

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, total = row
        g = self.slope(p, g)
        total = (self.initial if self.first else total) + g * g
        rate = self.lr / (1 + (self.step - 1) * self.lr_decay)
        return p - g / (total**0.5 + self.eps) * rate, total


@dataclass(slots=True)
class AdadeltaRule(DescendingRule):
    """Adadelta. A row's states are the means of squares of the gradient and of the changes. Zeiler, arXiv 1212.5701.

    Attributes:
        lr: what the change is multiplied by.
        rho: how much of the running means a step keeps.
        eps: added to both means before their roots are taken.
        weight_decay: the share of the parameter that is added to the gradient.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    rho: float
    eps: float
    weight_decay: float
    maximize: bool = False

    @property
    def states(self) -> int:
        return 2

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, square, moved = row
        g = self.slope(p, g)
        square = square * self.rho + g * (1 - self.rho) * g
        change = (moved + self.eps) ** 0.5 / (square + self.eps) ** 0.5 * g
        return p - change * self.lr, square, moved * self.rho + change * (1 - self.rho) * change


@dataclass(slots=True)
class AdamaxRule(DescendingRule):
    """Adamax. A row's states are the first moment and the running maximum. Kingma & Ba, arXiv 1412.6980, section 7.

    Attributes:
        lr: the learning rate.
        betas: how much of the moment and of the maximum a step keeps.
        eps: added to the gradient's size before it is compared with the maximum.
        weight_decay: the share of the parameter that is added to the gradient.
        step: the number of this step, from 1.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    step: int
    maximize: bool = False

    @property
    def states(self) -> int:
        return 2

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, m, largest = row
        beta1, beta2 = self.betas
        g = self.slope(p, g)
        mean = m + (g - m) * (1 - beta1)
        largest = symbols.apply("maximum", largest * beta2, abs(g) + self.eps)
        return p - mean / largest * (self.lr / (1 - beta1**self.step)), mean, largest


@dataclass(slots=True)
class NAdamRule(MomentsRule):
    """NAdam: Adam with Nesterov's momentum. A row's states are the first and the second moment. Dozat, ICLR 2016.

    Attributes:
        lr: the learning rate.
        betas: how much of the first and of the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: the share of the parameter that is added to the gradient or, decoupled, lr times taken off.
        momentum_decay: how fast the momentum grows to its full size.
        mu_product: the product of all momenta before this step.
        step: the number of this step, from 1.
        decoupled: whether the weight decay is AdamW's.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    momentum_decay: float
    mu_product: float
    step: int
    decoupled: bool = False
    maximize: bool = False

    @property
    def mu(self) -> float:
        """This step's momentum."""
        return self.betas[0] * (1 - 0.5 * math.pow(0.96, self.step * self.momentum_decay))

    @property
    def next_mu(self) -> float:
        """The next step's momentum."""
        return self.betas[0] * (1 - 0.5 * math.pow(0.96, (self.step + 1) * self.momentum_decay))

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, m, v = row
        beta2 = self.betas[1]
        p, g = self.decayed(p, g)
        mean, square = self.moments(g, m, v)
        spread = square**0.5 * (1 / (1 - beta2**self.step) ** 0.5) + self.eps
        product = self.mu_product * self.mu
        by_gradient = g * (self.lr * (1 - self.mu) / (1 - product))
        by_mean = mean * (self.lr * self.next_mu / (1 - product * self.next_mu))
        return p - (by_gradient + by_mean) / spread, mean, square


@dataclass(slots=True)
class RAdamRule(MomentsRule):
    """RAdam: Adam that waits for the second moment to be known well enough. Liu et al., arXiv 1908.03265.

    A row's states are the first and the second moment. Until then the first moment alone moves the parameter.

    Attributes:
        lr: the learning rate.
        betas: how much of the first and of the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: the share of the parameter that is added to the gradient or, decoupled, lr times taken off.
        step: the number of this step, from 1.
        decoupled: whether the weight decay is AdamW's.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    step: int
    decoupled: bool = False
    maximize: bool = False

    @property
    def rectification(self) -> float:
        """The paper's r_t: what the step is multiplied by; 0 where the second moment is not known well enough."""
        beta2 = self.betas[1]
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * self.step * beta2**self.step / (1 - beta2**self.step)
        if length <= 5:
            return 0.0
        ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return float(ratio**0.5)

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, m, v = row
        beta1, beta2 = self.betas
        p, g = self.decayed(p, g)
        mean, square = self.moments(g, m, v)
        change = mean * (self.lr / (1 - beta1**self.step))
        adapted = change * ((1 - beta2**self.step) ** 0.5 * self.rectification) / (square**0.5 + self.eps)
        change = symbols.apply("where", self.rectification == 0, change, adapted)
        return p - change, mean, square


@dataclass(slots=True)
class RpropRule(DescendingRule):
    """Rprop: signs of the gradient alone. A row's states are the last gradient and the size of the next step.

    Riedmiller & Braun, ICNN 1993, in the form that forgets a gradient whose sign has changed (Igel & Hüsken, 2000).

    Attributes:
        lr: the first size.
        etas: what the size is multiplied by where the sign has changed, and where it has not.
        step_sizes: the smallest and the largest size.
        first: whether this is the parameter's first step.
        maximize: whether the parameter goes up the gradient.
    """

    lr: float
    etas: tuple[float, float]
    step_sizes: tuple[float, float]
    first: bool = False
    maximize: bool = False

    @property
    def states(self) -> int:
        return 2

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, last, size = row
        g, size = self.descent(g), self.lr if self.first else size
        turned, kept_on = g * last < 0, g * last > 0
        factor = symbols.apply("where", turned, self.etas[0], symbols.apply("where", kept_on, self.etas[1], 1.0))
        size = symbols.apply("clamp", factor * size, *self.step_sizes)
        g = symbols.apply("where", turned, 0.0, g)
        return p - symbols.apply("sign", g) * size, g, size


@dataclass(slots=True)
class ASGDRule(DescendingRule):
    """Averaged stochastic gradient descent. A row's state is the average. Polyak & Juditsky, 1992.

    Attributes:
        lambd: the share of the parameter, times eta, that is taken off it.
        eta: this step's learning rate.
        mu: how far the average moves to the parameter: 1 all the way.
        weight_decay: the share of the parameter that is added to the gradient.
        maximize: whether the parameter goes up the gradient.
    """

    lambd: float
    eta: float
    mu: float
    weight_decay: float
    maximize: bool = False

    @property
    def states(self) -> int:
        return 1

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, average = row
        g = self.slope(p, g)
        moved = p * (1 - self.lambd * self.eta) - g * self.eta
        return moved, average + (moved - average) * self.mu
