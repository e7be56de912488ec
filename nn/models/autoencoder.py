"""Denoising autoencoders, one layer and stacked: networks that learn to restore what was damaged.

Vincent et al., Journal of Machine Learning Research 11, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from alpha import Tensor, no_grad
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.nn import init
from alpha.nn.arguments import choice, positive
from alpha.nn.containers import ModuleList, Sequential
from alpha.nn.linear import Linear
from alpha.nn.models import training
from alpha.nn.models.mlp import ACTIVATIONS, MLP, check_sizes, copy_linear
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import empty_parameter

_LEARNING_RATE = 1e-3


class DenoisingAutoencoder(Module):
    """Rows (n, inputs) to codes (n, hidden) and back, trained to give x for a damaged x.

    Args:
        inputs: length of a row.
        hidden: length of a code.
        corruption: ``"mask"`` sets values to 0, ``"gaussian"`` adds normal noise.
        level: probability of a 0 (0..1), or the noise's standard deviation.
        tied: whether the decoder uses the encoder's weight transposed, instead of one of its own.
        activation: of the codes, as MLP takes it.
        output: ``"sigmoid"`` for values in 0..1, trained by cross-entropy, or ``"linear"`` for any, by squared errors.

    Attributes:
        weight, hidden_bias, visible_bias: (hidden, inputs), (hidden,) and (inputs,).
        decoder_weight: (inputs, hidden); None where tied.
        history: of the last ``fit``.
    """

    weight: Parameter
    decoder_weight: Parameter | None

    def __init__(
        self,
        inputs: int,
        hidden: int,
        corruption: str = "mask",
        level: float = 0.3,
        tied: bool = False,
        activation: str = "sigmoid",
        output: str = "sigmoid",
    ) -> None:
        super().__init__()
        name = "DenoisingAutoencoder"
        self.inputs, self.hidden = positive(inputs, "inputs", name), positive(hidden, "hidden", name)
        self.corruption = choice(corruption, ("mask", "gaussian"), "corruption", name)
        self.level = _level(level, corruption)
        self.activation = choice(activation, tuple(ACTIVATIONS), "activation", name)
        self.activate = ACTIVATIONS[activation]()
        self.output = choice(output, ("sigmoid", "linear"), "output", name)
        self.weight = empty_parameter(hidden, inputs)
        self.hidden_bias, self.visible_bias = empty_parameter(hidden), empty_parameter(inputs)
        self.decoder_weight = None if tied else empty_parameter(inputs, hidden)
        self.history: training.History = {}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights xavier-uniform; biases 0."""
        init.xavier_uniform_(self.weight)
        init.zeros_(self.hidden_bias)
        init.zeros_(self.visible_bias)
        if self.decoder_weight is not None:
            init.xavier_uniform_(self.decoder_weight)

    def corrupt(self, x: Tensor) -> Tensor:
        """x damaged at random, from ``alpha.random``."""
        if self.corruption == "mask":
            return F.where(F.rand(x.shape, dtype=x.dtype, engine=x.engine) < self.level, 0.0, x)
        return x + F.randn(x.shape, dtype=x.dtype, engine=x.engine) * self.level

    def encode(self, x: Tensor) -> Tensor:
        """(n, inputs) to codes (n, hidden)."""
        return self.activate(F.linear(x, self.weight, self.hidden_bias))  # type: ignore[no-any-return]

    def decode_inputs(self, h: Tensor) -> Tensor:
        """Codes (n, hidden) to what the output's function is applied to, (n, inputs)."""
        if self.decoder_weight is not None:
            return F.linear(h, self.decoder_weight, self.visible_bias)
        return F.matmul(h, self.weight) + self.visible_bias

    def decode(self, h: Tensor) -> Tensor:
        """Codes (n, hidden) to rows (n, inputs)."""
        inputs = self.decode_inputs(h)
        return inputs.sigmoid() if self.output == "sigmoid" else inputs

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs) through the code to (n, inputs)."""
        return self.decode(self.encode(x))

    def loss(self, h: Tensor, target: Tensor) -> Tensor:
        """The mean over elements of the decoded codes' cross-entropy with, or squared distance from, the target."""
        inputs = self.decode_inputs(h)
        if self.output == "sigmoid":
            return F.binary_cross_entropy_with_logits(inputs, target)
        return F.mse_loss(inputs, target)

    def rows(self, x: Any, function: str) -> Tensor:
        """Data as a tensor (n, inputs)."""
        return training.rows_of(x, (self.inputs,), function, self.weight)

    def targets(self, x: Any, function: str) -> Tensor:
        """Rows that the output can take: in 0..1 where it is a sigmoid."""
        data = self.rows(x, function)
        if self.output == "sigmoid":
            training.check_unit_range(data, function)
        return data

    def fit(
        self,
        x: Any,
        epochs: int = 10,
        batch_size: int = 64,
        lr: float = _LEARNING_RATE,
        *,
        optimizer: training.OptimizerMaker | None = None,
        seed: int | None = None,
        callback: training.Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains to restore the rows from their damaged selves; returns self. ``history["error"]`` is the mean loss.

        Args:
            x: a tensor or an array of rows, in 0..1 where the output is a sigmoid.
            epochs, batch_size: passes over the rows, each time damaged anew; rows in an update.
            lr: of Adam, unless there is an ``optimizer``, made by ``optimizer(parameters)``.
            seed: of order and draws; by default those of ``alpha.manual_seed`` go on.
            callback, progress: ``callback(epoch, figures)`` after each epoch; whether a bar is shown.
        """
        data = self.targets(x, "DenoisingAutoencoder.fit")

        def loss(rows: Tensor) -> Tensor:
            return self.loss(self.encode(self.corrupt(rows)), rows)

        course = training.Epochs(epochs, batch_size, seed, callback, progress)
        self.history = _descend(self, [data], loss, lr, optimizer, course)
        return self

    def transform(self, x: Any) -> Tensor:
        """The codes of rows, undamaged (a tensor or an array), outside the graph."""
        with no_grad():
            return self.encode(self.rows(x, "transform"))

    def reconstruct(self, x: Any) -> Tensor:
        """What comes out for rows as they are, outside the graph."""
        with no_grad():
            return self(self.rows(x, "reconstruct"))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return (
            f"inputs={self.inputs}, hidden={self.hidden}, corruption={self.corruption!r}, level={self.level}, "
            f"tied={self.decoder_weight is None}, output={self.output!r}"
        )


class StackedDenoisingAutoencoder(Module):
    """Rows (n, sizes[0]) through codes of sizes[1], sizes[2], ... to codes (n, sizes[-1]), and back.

    ``fit`` trains the layers from the bottom to the top, each to restore the damaged codes of the one below;
    ``fine_tune`` then trains all of them together; ``to_mlp`` makes a classifier of the encoder.

    Args:
        sizes: lengths of the rows and of each code; at least two.
        corruption, level, tied, activation: as each DenoisingAutoencoder takes them.
        output: of the lowest layer; the others have a sigmoid if the codes that they restore have one.

    Attributes:
        layers: the autoencoders, from the bottom to the top.
        history: that of each layer's last ``fit``.
        fine_tuning: the history of the last ``fine_tune``.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        corruption: str = "mask",
        level: float = 0.3,
        tied: bool = False,
        activation: str = "sigmoid",
        output: str = "sigmoid",
    ) -> None:
        super().__init__()
        self.sizes = check_sizes(sizes, "StackedDenoisingAutoencoder")
        between = "sigmoid" if activation == "sigmoid" else "linear"
        outputs = (output, *[between] * (len(self.sizes) - 2))
        self.layers = ModuleList(
            [
                DenoisingAutoencoder(inputs, hidden, corruption, level, tied, activation, kind)
                for inputs, hidden, kind in zip(self.sizes, self.sizes[1:], outputs, strict=False)
            ]
        )
        self.fine_tuning: training.History = {}

    @property
    def history(self) -> list[training.History]:
        return [layer.history for layer in self.layers]

    def encode(self, x: Tensor) -> Tensor:
        """(n, sizes[0]) to codes (n, sizes[-1])."""
        for layer in self.layers:
            x = layer.encode(x)
        return x

    def decode(self, h: Tensor) -> Tensor:
        """Codes (n, sizes[-1]) to rows (n, sizes[0])."""
        return self.layers[0].decode(self._decode_upper(h))  # type: ignore[no-any-return]

    def _decode_upper(self, h: Tensor) -> Tensor:
        """Codes (n, sizes[-1]) to those of the lowest layer. What was restored is a code: it gets its activation."""
        for layer in reversed(list(self.layers)[1:]):
            h = layer.decode(h) if layer.output == "sigmoid" else layer.activate(layer.decode_inputs(h))
        return h

    def forward(self, x: Tensor) -> Tensor:
        """(n, sizes[0]) through the code to (n, sizes[0])."""
        return self.decode(self.encode(x))

    def fit(self, x: Any, epochs: int = 10, *, seed: int | None = None, **options: Any) -> Self:
        """Trains every layer for some epochs, from the bottom to the top; returns self.

        Args:
            x, epochs, seed: as ``DenoisingAutoencoder.fit`` takes them; layers draw from the seed one after another.
            options: what else it takes, the same for each layer.
        """
        data = x
        with training.seeded(seed):
            for layer in self.layers:
                layer.fit(data, epochs, **options)
                data = layer.transform(data)
        return self

    def fine_tune(
        self,
        x: Any,
        target: Any = None,
        epochs: int = 10,
        batch_size: int = 64,
        lr: float = _LEARNING_RATE,
        *,
        optimizer: training.OptimizerMaker | None = None,
        seed: int | None = None,
        callback: training.Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Trains all layers together as one autoencoder; returns self.

        Args:
            x: rows. With a target they are taken as they are; without, they are damaged as the lowest layer damages.
            target: what is to come out, row by row; by default x.
            epochs, batch_size, lr, optimizer, seed, callback, progress: as ``DenoisingAutoencoder.fit`` takes them.
        """
        name, lowest = "StackedDenoisingAutoencoder.fine_tune", self.layers[0]
        goal = lowest.targets(x if target is None else target, name)
        given = goal if target is None else lowest.rows(x, name)
        if len(given) != len(goal):
            raise ShapeError(f"[{name}] expected a target for each row, got {len(given)} rows and {len(goal)} targets")

        def loss(rows: Tensor, wanted: Tensor) -> Tensor:
            start = lowest.corrupt(rows) if target is None else rows
            return lowest.loss(self._decode_upper(self.encode(start)), wanted)  # type: ignore[no-any-return]

        course = training.Epochs(epochs, batch_size, seed, callback, progress)
        self.fine_tuning = _descend(self, [given, goal], loss, lr, optimizer, course)
        return self

    def transform(self, x: Any) -> Tensor:
        """The topmost codes of rows (a tensor or an array), outside the graph."""
        with no_grad():
            return self.encode(self.layers[0].rows(x, "transform"))

    def reconstruct(self, x: Any) -> Tensor:
        """What comes out for rows as they are, outside the graph: of damaged ones, the restored."""
        with no_grad():
            return self(self.layers[0].rows(x, "reconstruct"))  # type: ignore[no-any-return]

    def encoder(self) -> Sequential:
        """Linear layers and activations with copies of the encoder's weights: rows to the topmost codes."""
        parts: list[Module] = []
        for layer in self.layers:
            linear = Linear(layer.inputs, layer.hidden).to(layer.weight.engine).to(layer.weight.dtype)
            copy_linear(linear, layer.weight, layer.hidden_bias)
            parts += [linear, ACTIVATIONS[layer.activation]()]
        return Sequential(*parts)

    def to_mlp(self, num_classes: int, dropout: float = 0.0) -> MLP:
        """A classifier of layers sizes and num_classes with copies of the encoder's weights, the last layer new."""
        first = self.layers[0]
        net = MLP((*self.sizes, num_classes), first.activation, dropout).to(first.weight.engine).to(first.weight.dtype)
        for linear, layer in zip(net.linears, self.layers, strict=False):
            copy_linear(linear, layer.weight, layer.hidden_bias)
        return net


def _descend(
    net: Module,
    data: Sequence[Tensor],
    loss: Any,
    lr: float,
    make: training.OptimizerMaker | None,
    epochs: training.Epochs,
) -> training.History:
    """Trains a network's parameters down a loss of a batch of each of the data."""
    optimizer = training.adam(net.parameters(), lr) if make is None else make(net.parameters())

    def step(*batch: Tensor) -> Tensor:
        value: Tensor = loss(*batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value

    return training.train(type(net).__name__, data, step, epochs)


def _level(level: float, corruption: str) -> float:
    """The level, if it is a probability for a mask, or a deviation >= 0 for noise."""
    most = 1.0 if corruption == "mask" else math.inf
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 <= level <= most or level == math.inf:
        allowed = "from 0 to 1" if corruption == "mask" else ">= 0"
        raise ArgumentError(f"[DenoisingAutoencoder] expected level {allowed} for {corruption!r}, got {level!r}")
    return level
