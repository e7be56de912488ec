"""RBM: the restricted Boltzmann machine of binary units, trained by contrastive divergence.

Hinton, Neural Computation 14(8), 2002 (CD); Tieleman, ICML 2008 (PCD). An RBM gives units v and h the probability
exp(-E(v, h)) / Z with E(v, h) = -sum(b v) - sum(c h) - sum(h (W v)), so that p(h | v) and p(v | h) are products over
units. The gradient of the mean log-likelihood is the difference of two means of -dE: over the data with p(h | v), and
over the model, for which a few Gibbs steps stand.
"""

from __future__ import annotations

from typing import Any, Self

from alpha import Tensor, no_grad
from alpha import functions as F
from alpha.errors import ShapeError
from alpha.nn import init
from alpha.nn.arguments import positive
from alpha.nn.models import training
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import empty, empty_parameter

Statistics = tuple[Tensor, Tensor, Tensor]
"""Shaped as weight, visible_bias and hidden_bias."""


def bernoulli(p: Tensor) -> Tensor:
    """0 or 1 for each probability, drawn from ``alpha.random``."""
    return (F.rand(p.shape, dtype=p.dtype, engine=p.engine) < p).astype(p.dtype)


class BoltzmannMachine(Module):
    """What machines with energies linear in h have in common; a subclass gives the two passes and their statistics.

    Args:
        weight, visible, hidden: shapes of the weight and the two biases.
        k: Gibbs steps of the negative phase.
        particles: shape of the persistent chains' states, (chains, *row); None starts the chains at each batch (CD).
    """

    weight: Parameter
    visible_bias: Parameter
    hidden_bias: Parameter
    particles: Tensor | None

    def __init__(
        self, weight: tuple[int, ...], visible: int, hidden: int, k: int, particles: tuple[int, ...] | None
    ) -> None:
        super().__init__()
        self.k = positive(k, "k", type(self).__name__)
        self.weight = empty_parameter(*weight)
        self.visible_bias, self.hidden_bias = empty_parameter(visible), empty_parameter(hidden)
        self.register_buffer("particles", None if particles is None else empty(*particles))
        self.history: training.History = {}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights normal with deviation 0.01, the chains' states by coin; biases are 0."""
        init.normal_(self.weight, 0.0, 0.01)
        init.zeros_(self.visible_bias)
        init.zeros_(self.hidden_bias)
        if self.particles is not None:
            with no_grad():
                self.particles.copy_(bernoulli(F.full_like(self.particles, 0.5)))

    # -- a subclass's part -------------------------------------------------------------------------------------------

    def hidden_inputs(self, v: Tensor) -> Tensor:
        """c + W v: the log-odds of the hidden units."""
        raise self._missing("hidden_inputs")

    def visible_inputs(self, h: Tensor) -> Tensor:
        """b + W' h: the log-odds of the visible units."""
        raise self._missing("visible_inputs")

    def statistics(self, v: Tensor, h: Tensor) -> Statistics:
        """Means over the rows of -dE/d(weight, visible_bias, hidden_bias)."""
        raise self._missing("statistics")

    def rows(self, x: Any, function: str) -> Tensor:
        """Data as a tensor whose rows the machine takes, with values in 0..1."""
        raise self._missing("rows")

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"[{type(self).__name__}] expected a subclass with {method}, got none: write one")

    # -- probabilities and samples -----------------------------------------------------------------------------------

    def hidden_probabilities(self, v: Tensor) -> Tensor:
        """p(h = 1 | v) of every hidden unit."""
        return self.hidden_inputs(v).sigmoid()

    def visible_probabilities(self, h: Tensor) -> Tensor:
        """p(v = 1 | h) of every visible unit."""
        return self.visible_inputs(h).sigmoid()

    forward = hidden_probabilities

    def sample_hidden(self, v: Tensor) -> Tensor:
        """Hidden states, 0 or 1, drawn from p(h | v)."""
        return bernoulli(self.hidden_probabilities(v))

    def sample_visible(self, h: Tensor) -> Tensor:
        """Visible states, 0 or 1, drawn from p(v | h)."""
        return bernoulli(self.visible_probabilities(h))

    def gibbs(self, v: Tensor, steps: int = 1) -> Tensor:
        """Visible states after some steps v -> h -> v."""
        with no_grad():
            for _ in range(positive(steps, "steps", "gibbs")):
                v = self.sample_visible(self.sample_hidden(v))
        return v

    def energy(self, v: Tensor, h: Tensor) -> Tensor:
        """E(v, h) of each row, (n,)."""
        return self._visible_term(v) - _total(self.hidden_inputs(v) * h)

    def free_energy(self, v: Tensor) -> Tensor:
        """-log sum_h exp(-E(v, h)) of each row, (n,): -sum(b v) - sum(softplus(c + W v))."""
        inputs = self.hidden_inputs(v)
        softplus = F.binary_cross_entropy_with_logits(inputs, F.zeros_like(inputs.detach()), reduction="none")
        return self._visible_term(v) - _total(softplus)

    def _visible_term(self, v: Tensor) -> Tensor:
        return -_total(v * self.visible_bias)

    def reconstruct(self, x: Any) -> Tensor:
        """Probabilities of the visible units, given those of the hidden ones, given x; shaped as x."""
        with no_grad():
            return self.visible_probabilities(self.hidden_probabilities(self.rows(x, "reconstruct")))

    def transform(self, x: Any) -> Tensor:
        """Probabilities of the hidden units given x (a tensor or an array), outside the graph."""
        with no_grad():
            return self.hidden_probabilities(self.rows(x, "transform"))

    # -- training ----------------------------------------------------------------------------------------------------

    def gradients(self, v: Tensor) -> Statistics:
        """An estimate of the gradient of the mean of -log p(v) for weight, visible_bias and hidden_bias: CD-k or PCD.

        The positive phase is exact. The negative one is that of k Gibbs steps, from v, or from the persistent chains,
        which move on. The last hidden units are probabilities, which leaves less noise than states.
        """
        with no_grad():
            positive_phase = self.statistics(v, self.hidden_probabilities(v))
            states = self.gibbs(v if self.particles is None else self.particles, self.k)
            if self.particles is not None:
                self.particles.copy_(states)
            negative_phase = self.statistics(states, self.hidden_probabilities(states))
            weight, visible, hidden = (n - p for n, p in zip(negative_phase, positive_phase, strict=True))
        return weight, visible, hidden

    def fit(
        self,
        x: Any,
        epochs: int = 10,
        batch_size: int = 64,
        lr: float = 0.05,
        momentum: float = 0.5,
        weight_decay: float = 1e-4,
        *,
        held_out: Any = None,
        seed: int | None = None,
        callback: training.Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains on rows by stochastic gradient descent; returns self.

        ``history`` then has a number per epoch: ``error``, the mean squared difference of rows and reconstructions
        while training; ``free_energy``, the mean over (as many as are held out of) the rows; with held-out rows their
        ``held_out_free_energy``: where it climbs away from the rows', the machine overfits.

        Args:
            x: a tensor or an array of rows with values in 0..1, probabilities or states.
            epochs, batch_size: passes over the rows, rows in an update.
            lr, momentum: of the descent.
            weight_decay: that much of the weights, not of the biases, is added to their gradient.
            held_out: rows that are not trained on.
            seed: of order and draws; by default those of ``alpha.manual_seed`` go on.
            callback, progress: ``callback(epoch, figures)`` after each epoch; whether a bar is shown.
        """
        name = type(self).__name__
        data = self.rows(x, f"{name}.fit")
        others = None if held_out is None else self.rows(held_out, f"{name}.fit")
        groups: list[dict[str, Any]] = [
            {"params": [self.weight], "weight_decay": weight_decay},
            {"params": [self.visible_bias, self.hidden_bias]},
        ]
        optimizer = training.sgd(groups, lr, momentum)

        def step(v: Tensor) -> Tensor:
            parameters = self.weight, self.visible_bias, self.hidden_bias
            for parameter, gradient in zip(parameters, self.gradients(v), strict=True):
                parameter.grad = gradient
            optimizer.step().zero_grad()
            with no_grad():
                reconstruction = self.visible_probabilities(self.hidden_probabilities(v))
                return F.mse_loss(reconstruction, v)

        def measure() -> training.Figures:
            with no_grad():
                some = data if others is None else data[: len(others)]
                figures = {"free_energy": float(self.free_energy(some).mean())}
                if others is not None:
                    figures["held_out_free_energy"] = float(self.free_energy(others).mean())
            return figures

        course = training.Epochs(epochs, batch_size, seed, callback, progress)
        self.history = training.train(name, [data], step, course, measure)
        return self


class RBM(BoltzmannMachine):
    """A restricted Boltzmann machine: binary visible units (n, visible) and binary hidden ones (n, hidden).

    Trained by ``fit(x)``, or through ``gradients`` and an optimizer. As a layer it gives the hidden units'
    probabilities.

    Args:
        visible, hidden: numbers of units.
        k: Gibbs steps of the negative phase.
        persistent: whether its chains go on from one batch to the next (PCD), else start at each batch (CD).
        chains: how many of them where they are persistent.

    Attributes:
        weight, visible_bias, hidden_bias: (hidden, visible), (visible,) and (hidden,).
        particles: buffer, states of the persistent chains (chains, visible); None without.
        history: of the last ``fit``.
    """

    def __init__(self, visible: int, hidden: int, k: int = 1, persistent: bool = False, chains: int = 64) -> None:
        self.visible, self.hidden = positive(visible, "visible", "RBM"), positive(hidden, "hidden", "RBM")
        particles = (positive(chains, "chains", "RBM"), visible) if persistent else None
        super().__init__((hidden, visible), visible, hidden, k, particles)

    def hidden_inputs(self, v: Tensor) -> Tensor:
        """(n, visible) to (n, hidden)."""
        return F.linear(v, self.weight, self.hidden_bias)

    def visible_inputs(self, h: Tensor) -> Tensor:
        """(n, hidden) to (n, visible)."""
        if h.ndim != 2 or h.shape[1] != self.hidden:
            raise ShapeError(f"[RBM] expected hidden units (n, {self.hidden}), got {h.shape}")
        return F.matmul(h, self.weight) + self.visible_bias

    def statistics(self, v: Tensor, h: Tensor) -> Statistics:
        """Means of the outer products h v', of v and of h over the rows: (hidden, visible), (visible,), (hidden,)."""
        return F.matmul(h.transpose(0, 1), v) / len(v), v.mean(0), h.mean(0)

    def rows(self, x: Any, function: str) -> Tensor:
        data = training.rows_of(x, (self.visible,), function, self.weight)
        training.check_unit_range(data, function)
        return data

    def extra_repr(self) -> str:
        return f"visible={self.visible}, hidden={self.hidden}, k={self.k}, persistent={self.particles is not None}"


def _total(x: Tensor) -> Tensor:
    """The sum of each row's elements, (n,)."""
    return x.flatten(1).sum(1)
