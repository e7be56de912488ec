"""MLP: its layers, its values and gradients against PyTorch's, dropout, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from tests.engine.checks import gradcheck_on

TORCH = {
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "gelu": "GELU",
    "silu": "SiLU",
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("activation", TORCH)
def test_values_and_gradients_are_pytorchs(engine: Engine, rng: np.random.Generator, activation: str) -> None:
    import torch

    act = getattr(torch.nn, TORCH[activation])
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 9), act(), torch.nn.Linear(9, 5), act(), torch.nn.Linear(5, 3)
    ).double()
    ours = nn.models.MLP([6, 9, 5, 3], activation).to(engine).to(alpha.float64)
    ours.load_state_dict({f"layers.{key}": value for key, value in theirs.state_dict().items()})
    x, labels = rng.normal(size=(4, 6)), rng.integers(0, 3, 4)
    loss = nn.functional.cross_entropy(ours(engine.from_numpy(x)), alpha.tensor(labels, engine=engine))
    expected = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(labels))
    loss.backward()
    expected.backward()
    # float64 on both sides, sums of at most nine products of numbers near 1.
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(np.array(parameter.grad), other.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_gradcheck(engine: Engine, rng: np.random.Generator) -> None:
    net = nn.models.MLP((3, 4, 2), "tanh").to(engine).to(alpha.float64)
    assert gradcheck_on(engine, net, rng.normal(size=(5, 3)))


def test_images_are_flattened_and_one_layer_is_enough(engine: Engine, rng: np.random.Generator) -> None:
    net = nn.models.MLP([24, 5]).to(engine).to(alpha.float64)
    x = rng.normal(size=(2, 4, 3, 2))
    (layer,) = net.linears
    expected = x.reshape(2, 24) @ np.array(layer.weight.detach()).T + np.array(layer.bias.detach())
    np.testing.assert_allclose(np.asarray(net(engine.from_numpy(x))), expected, rtol=1e-12)


def test_dropout_stands_behind_each_hidden_layer_and_works_in_training_alone(engine: Engine) -> None:
    net = nn.models.MLP([4, 50, 50, 2], dropout=0.5).to(engine)
    assert [type(layer).__name__ for layer in net.layers] == ["Linear", "ReLU", "Dropout"] * 2 + ["Linear"]
    x = alpha.ones(3, 4, engine=engine)
    with alpha.no_grad():
        assert not np.array_equal(np.array(net(x)), np.array(net(x)))
        net.eval()
        np.testing.assert_array_equal(np.array(net(x)), np.array(net(x)))
    assert not [layer for layer in nn.models.MLP([4, 5, 2]).layers if isinstance(layer, nn.Dropout)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([4],), r"\[MLP\] expected sizes as a list of at least two lengths, got \[4\]"),
        ((7,), r"\[MLP\] expected sizes as a list of at least two lengths, got 7"),
        (([4, 0],), r"\[MLP\] expected sizes as an integer >= 1, got 0"),
        (([4, 2], "softsign"), r'\[MLP\] expected activation as one of "relu", .*, got \'softsign\''),
        (([4, 3, 2], "relu", 1.5), r"\[MLP\] expected dropout from 0 to 1, got 1.5"),
    ],
)
def test_wrong_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        nn.models.MLP(*arguments)


def test_rows_of_a_wrong_length_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\[linear\]"):
        nn.models.MLP([4, 2])(alpha.zeros(3, 5))
