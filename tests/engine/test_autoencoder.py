"""Denoising autoencoders: passes by hand, damage, losses and gradients, greedy training, fine-tuning, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on, sized

Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def autoencoder(engine: Engine, rng: np.random.Generator, **options: Any) -> tuple[nn.models.DenoisingAutoencoder, Any]:
    """One of 5 inputs and 3 codes in float64, and its values: weight, biases, decoder's weight."""
    net = nn.models.DenoisingAutoencoder(5, 3, **options).to(engine).to(alpha.float64)
    values = {name: rng.normal(size=tensor.shape) for name, tensor in net.state_dict().items()}
    net.load_state_dict(values)
    return net, values


# -- one layer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["sigmoid", "linear"])
@pytest.mark.parametrize("activation", ["sigmoid", "relu", "tanh"])
@pytest.mark.parametrize("tied", [False, True])
def test_passes_and_loss_by_hand(
    engine: Engine, rng: np.random.Generator, tied: bool, activation: str, output: str
) -> None:
    net, values = autoencoder(engine, rng, tied=tied, activation=activation, output=output)
    assert ("decoder_weight" in values) != tied
    x = rng.uniform(size=(4, 5))
    inputs = x @ values["weight"].T + values["hidden_bias"]
    h = {"sigmoid": sigmoid(inputs), "relu": np.maximum(inputs, 0), "tanh": np.tanh(inputs)}[activation]
    back = (values["weight"] if tied else values["decoder_weight"].T) + 0
    z = h @ back + values["visible_bias"]
    y = sigmoid(z) if output == "sigmoid" else z
    assert_close(net.transform(x), h)
    assert_close(net.reconstruct(x), y)
    with alpha.no_grad():
        loss = net.loss(engine.from_numpy(h), engine.from_numpy(x)).item()
    if output == "sigmoid":
        expected = -np.mean(x * np.log(y) + (1 - x) * np.log(1 - y))
    else:
        expected = np.mean((y - x) ** 2)
    assert loss == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_of_every_parameter(engine: Engine, rng: np.random.Generator, tied: bool) -> None:
    net, values = autoencoder(engine, rng, tied=tied)
    x = rng.uniform(size=(4, 5))
    assert gradcheck_on(engine, net, x)
    net.zero_grad()
    rows = engine.from_numpy(x)
    net.loss(net.encode(rows), rows).backward()

    def loss(changed: dict[str, Array]) -> float:
        h = sigmoid(x @ changed["weight"].T + changed["hidden_bias"])
        back = changed["weight"] if tied else changed["decoder_weight"].T
        z = h @ back + changed["visible_bias"]
        return float(np.mean(np.logaddexp(0, z) - x * z))

    for name, parameter in net.named_parameters():
        for place in np.ndindex(parameter.shape):
            step = np.zeros(parameter.shape)
            step[place] = 1e-5
            pair = [loss({**values, name: values[name] + sign * step}) for sign in (1, -1)]
            # Central differences: 1e-10 from the third derivative, 1e-11 from rounding.
            assert np.array(parameter.grad)[place] == pytest.approx((pair[0] - pair[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_damage(engine: Engine) -> None:
    alpha.manual_seed(3)
    n = sized(engine, 200, 40)
    x = alpha.full((n, 50), 2.0, engine=engine)
    masked = np.array(nn.models.DenoisingAutoencoder(50, 2, "mask", 0.3).corrupt(x))
    share = np.mean(masked == 0)
    assert set(np.unique(masked)) == {0.0, 2.0}
    assert abs(share - 0.3) <= 5 * np.sqrt(0.3 * 0.7 / masked.size)
    noise = np.array(nn.models.DenoisingAutoencoder(50, 2, "gaussian", 0.5).corrupt(x)) - 2
    assert abs(noise.mean()) <= 5 * 0.5 / np.sqrt(noise.size)
    assert abs(noise.std() - 0.5) <= 5 * 0.5 / np.sqrt(2 * noise.size)
    for corruption in ("mask", "gaussian"):
        np.testing.assert_array_equal(
            np.array(nn.models.DenoisingAutoencoder(50, 2, corruption, 0).corrupt(x)), np.array(x)
        )


def planted(rng: np.random.Generator, count: int) -> Array:
    """Rows of 12 in 0..1 that three numbers determine: the rest can be restored from what is left."""
    return np.repeat(rng.integers(0, 2, (count, 3)), 4, axis=1).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_it_learns_to_restore(engine: Engine, rng: np.random.Generator, tied: bool) -> None:
    alpha.manual_seed(1)
    net = nn.models.DenoisingAutoencoder(12, 8, level=0.25, tied=tied).to(engine)
    data = planted(rng, 64)
    before = np.abs(np.array(net.reconstruct(data)) - data).mean()
    assert net.fit(data, sized(engine, 100, 25), 16, lr=0.02, seed=1) is net
    hurt = data * (np.arange(12) % 4 != 1)
    after = np.abs(np.array(net.reconstruct(hurt)) - data).mean()
    assert after < sized(engine, 0.25, 0.8) * before
    assert net.history["error"][-1] < 0.6 * net.history["error"][0]


def test_an_optimizer_of_ones_own_and_runs_that_repeat(engine: Engine, rng: np.random.Generator) -> None:
    data = planted(rng, 20)

    def run(make: Any) -> list[bytes]:
        alpha.manual_seed(4)
        net = nn.models.DenoisingAutoencoder(12, 3, "gaussian", 0.2).to(engine)
        net.fit(data, 2, 6, optimizer=make)
        return [np.array(value).tobytes() for value in net.state_dict().values()]

    plain = run(None)
    assert run(None) == plain == run(lambda params: alpha.optim.Adam(params, lr=1e-3))
    assert run(lambda params: alpha.optim.SGD(params, lr=1e-3)) != plain


# -- the stack ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("activation", "tied"), [("sigmoid", False), ("sigmoid", True), ("relu", False)])
def test_up_and_down_by_hand(engine: Engine, rng: np.random.Generator, activation: str, tied: bool) -> None:
    net = nn.models.StackedDenoisingAutoencoder([6, 5, 4, 3], tied=tied, activation=activation).to(engine).to("float64")
    assert [layer.output for layer in net.layers] == (
        ["sigmoid"] * 3 if activation == "sigmoid" else ["sigmoid", "linear", "linear"]
    )
    values = {name: rng.normal(size=tensor.shape) for name, tensor in net.state_dict().items()}
    net.load_state_dict(values)
    act = sigmoid if activation == "sigmoid" else lambda z: np.maximum(z, 0)
    x = h = rng.uniform(size=(4, 6))
    for n in range(3):
        h = act(h @ values[f"layers.{n}.weight"].T + values[f"layers.{n}.hidden_bias"])
    assert_close(net.transform(x), h)
    y = h
    for n in (2, 1, 0):
        back = values[f"layers.{n}.weight"] if tied else values[f"layers.{n}.decoder_weight"].T
        y = (sigmoid if n == 0 else act)(y @ back + values[f"layers.{n}.visible_bias"])
    assert_close(net.reconstruct(x), y)
    assert_close(net.encoder()(engine.from_numpy(x)), h)
    mlp = net.to_mlp(2).eval()
    last = mlp.linears[-1]
    assert_close(mlp(engine.from_numpy(x)), h @ np.array(last.weight.detach()).T + np.array(last.bias.detach()))
    assert mlp.sizes == (6, 5, 4, 3, 2) and mlp.activation == activation


def test_fit_is_greedy(engine: Engine, rng: np.random.Generator) -> None:
    x = planted(rng, 20)
    alpha.manual_seed(1)
    net = nn.models.StackedDenoisingAutoencoder([12, 6, 4], "gaussian", 0.1).to(engine)
    alpha.manual_seed(1)
    layers = [nn.models.DenoisingAutoencoder(*units, "gaussian", 0.1).to(engine) for units in ((12, 6), (6, 4))]
    assert net.fit(x, 2, seed=3, batch_size=6, lr=0.01) is net
    alpha.manual_seed(3)
    layers[0].fit(x, 2, 6, 0.01)
    layers[1].fit(layers[0].transform(x), 2, 6, 0.01)
    for ours, expected in zip(net.layers, layers, strict=True):
        for name, value in expected.state_dict().items():
            np.testing.assert_array_equal(np.array(ours.state_dict()[name]), np.array(value))
    assert net.history == [layer.history for layer in layers]


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True], ids=["own damage", "pairs"])
def test_fine_tuning_restores(engine: Engine, rng: np.random.Generator, given: bool) -> None:
    alpha.manual_seed(1)
    net = nn.models.StackedDenoisingAutoencoder([12, 10, 6], level=0.25).to(engine)
    data = planted(rng, 64)
    hurt = data * (np.arange(12) % 4 != 1)
    epochs = sized(engine, 100, 20)
    net.fit(data, epochs, batch_size=16, lr=0.02)
    before = np.abs(np.array(net.reconstruct(hurt)) - data).mean()
    assert net.fine_tune(*((hurt, data) if given else (data,)), epochs=epochs, batch_size=16, lr=0.02, seed=2) is net
    after = np.abs(np.array(net.reconstruct(hurt)) - data).mean()
    assert after < 0.8 * before
    assert len(net.fine_tuning["error"]) == epochs


def test_codes_are_copied_into_the_classifier(engine: Engine) -> None:
    net = nn.models.StackedDenoisingAutoencoder([4, 3, 2]).to(engine)
    before = np.array(net.layers[0].weight.detach())
    with alpha.no_grad():
        net.to_mlp(2).linears[0].weight.zero_()
        net.encoder()[0].weight.zero_()
    np.testing.assert_array_equal(np.array(net.layers[0].weight.detach()), before)


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_misuse_says_what_was_expected() -> None:
    one, stack = nn.models.DenoisingAutoencoder, nn.models.StackedDenoisingAutoencoder
    for call, message in (
        (lambda: one(0, 2), r"\[DenoisingAutoencoder\] expected inputs as an integer >= 1, got 0"),
        (lambda: one(3, 2, "salt"), r'\[DenoisingAutoencoder\] expected corruption as one of "mask", "gaussian"'),
        (lambda: one(3, 2, "mask", 1.5), r"\[DenoisingAutoencoder\] expected level from 0 to 1 for 'mask', got 1.5"),
        (lambda: one(3, 2, "gaussian", -1), r"\[DenoisingAutoencoder\] expected level >= 0 for 'gaussian', got -1"),
        (lambda: one(3, 2, activation="step"), r"\[DenoisingAutoencoder\] expected activation as one of"),
        (lambda: one(3, 2, output="relu"), r'\[DenoisingAutoencoder\] expected output as one of "sigmoid", "linear"'),
        (lambda: stack([3]), r"\[StackedDenoisingAutoencoder\] expected sizes as a list of at least two lengths"),
        (
            lambda: one(3, 2).fit(np.full((2, 3), 2.0)),
            r"\[DenoisingAutoencoder.fit\] expected values in 0..1, got 2..2",
        ),
        (
            lambda: stack([3, 2]).fine_tune(np.zeros((2, 3)), np.full((2, 3), -1.0)),
            r"\[StackedDenoisingAutoencoder.fine_tune\] expected values in 0..1, got -1..-1",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()
    with pytest.raises(ShapeError, match=r"\[DenoisingAutoencoder.fit\] expected rows \(n, 3\), n >= 1, got \(2, 4\)"):
        one(3, 2).fit(np.zeros((2, 4)))
    with pytest.raises(ShapeError, match=r"fine_tune\] expected a target for each row, got 2 rows and 3 targets"):
        stack([3, 2]).fine_tune(np.zeros((2, 3)), np.zeros((3, 3)))
    one(3, 2, output="linear").fit(np.full((2, 3), 7.0), 1)  # any values where the output is linear
