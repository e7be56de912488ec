"""DBN: restricted Boltzmann machines on top of each other, trained one after another.

Hinton, Osindero & Teh, Neural Computation 18, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from alpha import Tensor, no_grad
from alpha.nn.containers import ModuleList
from alpha.nn.models import training
from alpha.nn.models.mlp import MLP, check_sizes, copy_linear
from alpha.nn.models.rbm import RBM
from alpha.nn.module import Module


class DBN(Module):
    """Rows (n, sizes[0]) to the hidden probabilities of the topmost machine, (n, sizes[-1]).

    ``fit`` trains the machines from the bottom to the top, each on the hidden probabilities of the one below;
    ``to_mlp`` then makes the network that backpropagation fine-tunes.

    Args:
        sizes: numbers of units, visible first; at least two.
        k, persistent, chains: as each RBM takes them.

    Attributes:
        rbms: the machines, from the bottom to the top.
        history: that of each machine's last ``fit``.
    """

    def __init__(self, sizes: Sequence[int], k: int = 1, persistent: bool = False, chains: int = 64) -> None:
        super().__init__()
        self.sizes = check_sizes(sizes, "DBN")
        pairs = zip(self.sizes, self.sizes[1:], strict=False)
        self.rbms = ModuleList([RBM(visible, hidden, k, persistent, chains) for visible, hidden in pairs])

    @property
    def history(self) -> list[training.History]:
        return [rbm.history for rbm in self.rbms]

    def forward(self, x: Tensor) -> Tensor:
        """(n, sizes[0]) to (n, sizes[-1]), differentiable."""
        for rbm in self.rbms:
            x = rbm(x)
        return x

    def fit(self, x: Any, epochs: int = 10, *, held_out: Any = None, seed: int | None = None, **options: Any) -> Self:
        """Trains every machine for some epochs, from the bottom to the top; returns self.

        Args:
            x, epochs, held_out, seed: as ``RBM.fit`` takes them; machines draw from the seed one after another.
            options: what else ``RBM.fit`` takes, the same for each machine.
        """
        data, others = x, held_out
        with training.seeded(seed):
            for rbm in self.rbms:
                rbm.fit(data, epochs, held_out=others, **options)
                data = rbm.transform(data)
                others = None if others is None else rbm.transform(others)
        return self

    def transform(self, x: Any) -> Tensor:
        """The topmost hidden probabilities given x (a tensor or an array), outside the graph."""
        with no_grad():
            return self(self.rbms[0].rows(x, "transform"))  # type: ignore[no-any-return]

    def reconstruct(self, x: Any) -> Tensor:
        """Probabilities of the visible units after going up to the top and down again; shaped as x."""
        with no_grad():
            h = self.transform(x)
            for rbm in reversed(self.rbms):
                h = rbm.visible_probabilities(h)
        return h

    def to_mlp(self, num_classes: int, dropout: float = 0.0) -> MLP:
        """A classifier of layers sizes and num_classes: sigmoid units, the weights copied, the last layer new."""
        first = self.rbms[0].weight
        net = MLP((*self.sizes, num_classes), "sigmoid", dropout).to(first.engine).to(first.dtype)
        for linear, rbm in zip(net.linears, self.rbms, strict=False):
            copy_linear(linear, rbm.weight, rbm.hidden_bias)
        return net
