"""MLP: the fully connected network, the DNN classifier that deep architectures are unfolded into."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpha import Tensor, no_grad
from alpha.errors import ArgumentError
from alpha.nn.activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Tanh
from alpha.nn.arguments import choice, positive, probability
from alpha.nn.containers import Sequential
from alpha.nn.dropout import Dropout
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.shape import Flatten

ACTIVATIONS: dict[str, Callable[[], Module]] = {
    "relu": ReLU,
    "leaky_relu": LeakyReLU,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "gelu": GELU,
    "silu": SiLU,
}


class MLP(Module):
    """Rows (N, sizes[0]), or (N, ...) of as many elements, to (N, sizes[-1]): logits where it classifies.

    Linear layers sizes[0] -> sizes[1] -> ... -> sizes[-1], with an activation and dropout behind each but the last.

    Args:
        sizes: lengths of the input, of each hidden layer and of the result; at least two.
        activation: ``"relu"``, ``"leaky_relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` or ``"silu"``.
        dropout: probability with which a hidden unit is dropped in training; 0 turns it off.

    Attributes:
        linears: the linear layers, first to last.
    """

    def __init__(self, sizes: Sequence[int], activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = check_sizes(sizes, "MLP")
        self.activation = choice(activation, tuple(ACTIVATIONS), "activation", "MLP")
        self.dropout = probability(dropout, "dropout", "MLP")
        self.flatten = Flatten()
        layers: list[Module] = []
        for inputs, outputs in zip(self.sizes, self.sizes[1:], strict=False):
            if layers:
                layers += [ACTIVATIONS[activation](), *([Dropout(dropout)] if dropout else [])]
            layers.append(Linear(inputs, outputs))
        self.layers = Sequential(*layers)

    @property
    def linears(self) -> tuple[Linear, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Linear))

    def forward(self, x: Tensor) -> Tensor:
        """(N, sizes[0]) or (N, ...) to (N, sizes[-1])."""
        return self.layers(self.flatten(x))  # type: ignore[no-any-return]


def check_sizes(sizes: Sequence[int], layer: str) -> tuple[int, ...]:
    """The sizes as a tuple; ArgumentError unless there are at least two, each >= 1."""
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or len(sizes) < 2:
        raise ArgumentError(f"[{layer}] expected sizes as a list of at least two lengths, got {sizes!r}")
    return tuple(positive(size, "sizes", layer) for size in sizes)


def copy_linear(layer: Linear, weight: Tensor, bias: Tensor) -> None:
    """Copies a weight (out, in) and a bias (out,) into a linear layer, in place."""
    with no_grad():
        layer.weight.copy_(weight)
        if layer.bias is not None:
            layer.bias.copy_(bias)
