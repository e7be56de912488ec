"""ConvRBM against its definition in explicit loops and against enumeration of all states of a tiny one, in float64."""

from __future__ import annotations

from itertools import product
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

# images (n, H, W, C), filters, kernel: one image, odd channels, filters as large as the image, 1x1, non-square
SHAPES = [
    ((3, 6, 5, 2), 4, (3, 3)),
    ((1, 5, 9, 3), 5, (2, 4)),
    ((2, 3, 4, 1), 7, (3, 4)),
    ((4, 1, 1, 3), 2, (1, 1)),
    ((2, 4, 3, 17), 9, (1, 2)),
]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Definition:
    """Energies, probabilities and statistics, position by position and tap by tap."""

    def __init__(self, weight: Array, visible_bias: Array, hidden_bias: Array) -> None:
        self.weight, self.visible_bias, self.hidden_bias = weight, visible_bias, hidden_bias
        self.taps = list(np.ndindex(weight.shape[1:3]))

    def hidden_inputs(self, v: Array) -> Array:
        rows, columns = (v.shape[1] - self.weight.shape[1] + 1, v.shape[2] - self.weight.shape[2] + 1)
        out = np.tile(self.hidden_bias, (len(v), rows, columns, 1))
        for (a, b), i, j in product(self.taps, range(rows), range(columns)):
            out[:, i, j] += v[:, i + a, j + b] @ self.weight[:, a, b].T
        return out

    def visible_inputs(self, h: Array) -> Array:
        rows, columns = (h.shape[1] + self.weight.shape[1] - 1, h.shape[2] + self.weight.shape[2] - 1)
        out = np.tile(self.visible_bias, (len(h), rows, columns, 1))
        for (a, b), i, j in product(self.taps, range(h.shape[1]), range(h.shape[2])):
            out[:, i + a, j + b] += h[:, i, j] @ self.weight[:, a, b]
        return out

    def statistics(self, v: Array, h: Array) -> tuple[Array, Array, Array]:
        weight = np.zeros_like(self.weight)
        for (a, b), i, j in product(self.taps, range(h.shape[1]), range(h.shape[2])):
            weight[:, a, b] += h[:, i, j].T @ v[:, i + a, j + b]
        return weight / len(v), v.sum((0, 1, 2)) / len(v), h.sum((0, 1, 2)) / len(v)

    def scores(self, v: Array, h: Array) -> Array:
        """-E of each row."""
        inputs = self.hidden_inputs(v)
        return (v * self.visible_bias).sum((1, 2, 3)) + (inputs * h).sum((1, 2, 3))


def machine(
    engine: Engine,
    rng: np.random.Generator,
    channels: int,
    filters: int,
    kernel: Any,
    scale: float = 0.5,
    **options: Any,
) -> tuple[nn.models.ConvRBM, Definition]:
    rbm = nn.models.ConvRBM(channels, filters, kernel, **options).to(engine).to(alpha.float64)
    shapes = (filters, *kernel, channels), channels, filters
    values = dict(
        zip(("weight", "visible_bias", "hidden_bias"), (rng.normal(0, scale, s) for s in shapes), strict=True)
    )
    rbm.load_state_dict(values, strict=False)
    return rbm, Definition(**values)


@pytest.mark.parametrize(("images", "filters", "kernel"), SHAPES, ids=str)
def test_passes_energies_and_statistics_are_the_definitions(
    engine: Engine, rng: np.random.Generator, images: Any, filters: int, kernel: Any
) -> None:
    rbm, definition = machine(engine, rng, images[3], filters, kernel)
    v = rng.uniform(size=images)
    inputs = definition.hidden_inputs(v)
    h = sigmoid(inputs)
    visible, hidden = engine.from_numpy(v), engine.from_numpy(h)
    with alpha.no_grad():
        assert_close(rbm.hidden_probabilities(visible), h)
        assert_close(rbm.visible_probabilities(hidden), sigmoid(definition.visible_inputs(h)))
        assert_close(rbm.energy(visible, hidden), -definition.scores(v, h))
        softplus = np.log1p(np.exp(inputs)).sum((1, 2, 3))
        assert_close(rbm.free_energy(visible), -(v * definition.visible_bias).sum((1, 2, 3)) - softplus)
        for ours, expected in zip(rbm.statistics(visible, hidden), definition.statistics(v, h), strict=True):
            assert_close(ours, expected)
    assert_close(rbm.transform(v), h)
    assert_close(rbm.reconstruct(v), sigmoid(definition.visible_inputs(h)))


def test_free_energys_gradients(engine: Engine, rng: np.random.Generator) -> None:
    rbm, _ = machine(engine, rng, 2, 3, (2, 3))
    v = rng.uniform(size=(2, 4, 5, 2))
    assert gradcheck_on(engine, rbm.free_energy, v)
    rbm.zero_grad()
    rbm.free_energy(engine.from_numpy(v)).mean().backward()
    with alpha.no_grad():
        visible = engine.from_numpy(v)
        expected = rbm.statistics(visible, rbm.hidden_probabilities(visible))
    for parameter, statistic in zip((rbm.weight, rbm.visible_bias, rbm.hidden_bias), expected, strict=True):
        assert_close(parameter.grad, -np.array(statistic))


class Exact:
    """A 3x3 image of one channel under 2 filters of 2x2: 512 visible and 256 hidden states, all of them."""

    def __init__(self, definition: Definition) -> None:
        self.v = np.array(list(product((0.0, 1.0), repeat=9))).reshape(-1, 3, 3, 1)
        h = np.array(list(product((0.0, 1.0), repeat=8))).reshape(-1, 2, 2, 2)
        inputs = definition.hidden_inputs(self.v).reshape(len(self.v), -1)
        scores = (self.v * definition.visible_bias).sum((1, 2, 3))[:, None] + inputs @ h.reshape(len(h), -1).T
        self.free_energy = -np.log(np.exp(scores).sum(1))
        self.log_z = float(np.log(np.exp(scores).sum()))
        self.p = np.exp(-self.free_energy - self.log_z)
        joint = np.exp(scores - self.log_z)
        # E[h | v], by the states.
        self.h = (joint @ h.reshape(len(h), -1) / joint.sum(1, keepdims=True)).reshape(-1, 2, 2, 2)

    def log_likelihood(self, places: Array) -> float:
        return float(np.mean(-self.free_energy[places])) - self.log_z


def test_free_energy_and_probabilities_are_the_enumerated_ones(engine: Engine, rng: np.random.Generator) -> None:
    rbm, definition = machine(engine, rng, 1, 2, (2, 2))
    exact = Exact(definition)
    with alpha.no_grad():
        assert_close(rbm.free_energy(engine.from_numpy(exact.v)), exact.free_energy)
    assert_close(rbm.transform(exact.v), exact.h)
    assert exact.p.sum() == pytest.approx(1)


@pytest.mark.parametrize("persistent", [False, True])
def test_long_chains_approach_the_exact_gradient(engine: Engine, rng: np.random.Generator, persistent: bool) -> None:
    """Within 5 standard errors of the enumerated negative phase; 11 numbers, 100 steps from the start."""
    chains = sized(engine, 4000, 200)
    options = {"persistent": True, "chains": chains, "image_size": 3} if persistent else {}
    rbm, definition = machine(engine, rng, 1, 2, (2, 2), k=sized(engine, 100, 40), **options)
    exact = Exact(definition)
    alpha.manual_seed(7)
    data = rng.integers(0, 2, (chains, 3, 3, 1)).astype(np.float64)
    found = [np.array(g) for g in rbm.gradients(engine.from_numpy(data))]
    positive = definition.statistics(data, sigmoid(definition.hidden_inputs(data)))
    single = [definition.statistics(v[None], h[None]) for v, h in zip(exact.v, exact.h, strict=True)]
    for number, ours in enumerate(found):
        terms = np.array([figures[number] for figures in single])
        mean = np.tensordot(exact.p, terms, 1)
        error = np.sqrt(np.tensordot(exact.p, (terms - mean) ** 2, 1) / chains)
        assert np.all(np.abs(ours - (mean - positive[number])) <= 5 * error)


@pytest.mark.parametrize("persistent", [False, True])
def test_training_raises_the_exact_likelihood(engine: Engine, rng: np.random.Generator, persistent: bool) -> None:
    """Images of one horizontal line, of which there are three."""
    alpha.manual_seed(2)
    options = {"persistent": True, "chains": 30, "image_size": (3, 3)} if persistent else {}
    rbm, definition = machine(engine, rng, 1, 2, (2, 2), scale=0.01, **options)
    data = np.zeros((30, 3, 3, 1))
    data[np.arange(30), np.arange(30) % 3] = 1
    places = (data.reshape(30, 9) @ (2 ** np.arange(9)[::-1])).astype(int)
    before = Exact(definition).log_likelihood(places)
    rbm.fit(data, epochs=sized(engine, 80, 15), batch_size=10, lr=0.05, weight_decay=0.0)
    values = {name: np.array(value) for name, value in rbm.state_dict().items() if name != "particles"}
    after = Exact(Definition(**values)).log_likelihood(places)
    assert after > before + sized(engine, 1.0, 0.2)
    assert set(rbm.history) == {"error", "free_energy"}


def test_runs_repeat_bit_for_bit(engine: Engine, rng: np.random.Generator) -> None:
    data = rng.uniform(size=(9, 5, 4, 2)).astype(np.float32)

    def run() -> list[bytes]:
        alpha.manual_seed(4)
        rbm = nn.models.ConvRBM(2, 3, 2, k=2).to(engine)
        rbm.fit(data, epochs=2, batch_size=4)
        return [np.array(value).tobytes() for value in rbm.state_dict().values()]

    assert run() == run()


def test_misuse_says_what_was_expected() -> None:
    make = nn.models.ConvRBM
    for call, message in (
        (lambda: make(0, 1, 3), r"\[ConvRBM\] expected in_channels as an integer >= 1, got 0"),
        (lambda: make(1, 0, 3), r"\[ConvRBM\] expected filters as an integer >= 1, got 0"),
        (lambda: make(1, 1, (3, 0)), r"\[ConvRBM\] expected kernel_size as one or two integers >= 1"),
        (lambda: make(1, 1, 3, persistent=True), r"\[ConvRBM\] expected image_size with persistent chains and only"),
        (lambda: make(1, 1, 3, image_size=5), r"\[ConvRBM\] expected image_size with persistent chains and only"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()
    with pytest.raises(ShapeError, match=r"\[ConvRBM\] expected images of at least \(3, 3\), got \(2, 5\)"):
        make(1, 1, 3, persistent=True, image_size=(2, 5))
    rbm = make(1, 1, 3)
    with pytest.raises(ShapeError, match=r"\[transform\] expected images of at least \(3, 3\), got \(5, 2\)"):
        rbm.transform(np.zeros((1, 5, 2, 1)))
    with pytest.raises(ShapeError, match=r"\[ConvRBM.fit\] expected rows \(n, \*, \*, 1\), n >= 1, got \(2, 5, 5, 3\)"):
        rbm.fit(np.zeros((2, 5, 5, 3)))
    with pytest.raises(ArgumentError, match=r"\[ConvRBM.fit\] expected values in 0..1, got 0..255"):
        rbm.fit(np.array([0.0, 255.0] * 18).reshape(1, 6, 6, 1))
