"""Spectral normalisation against PyTorch's older form and NumPy's singular values; state, copies, removal, errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from tests.engine.test_nn_layers import compare

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (5, 3), {}, (4, 5)),
    ("Conv2d", (3, 5, (2, 3)), {"stride": 2}, (2, 5, 6, 3)),
    ("Conv2d", (4, 6, 3), {"groups": 2, "bias": False}, (1, 3, 3, 4)),
    ("ConvTranspose2d", (3, 5, (2, 3)), {"stride": 2}, (2, 3, 2, 3)),
    ("ConvTranspose2d", (4, 6, 3), {"groups": 2, "bias": False}, (1, 1, 1, 4)),
]


def normed(engine: Engine, layer: nn.Module, **options: Any) -> Any:
    return nn.utils.spectral_norm(layer.to(engine).to(alpha.float64), **options)


def images(engine: Engine, rng: np.random.Generator, *shape: int) -> alpha.Tensor:
    return alpha.tensor(rng.normal(size=shape), engine=engine)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
@pytest.mark.filterwarnings("ignore:.*spectral_norm:FutureWarning")
def test_matches_pytorch(
    engine: Engine,
    rng: np.random.Generator,
    name: str,
    args: Any,
    options: Any,
    shape: Any,
    training: bool,
    iterations: int,
) -> None:
    """Values, gradients, u and v of several forwards, from PyTorch's state."""
    import torch

    theirs = getattr(torch.nn, name)(*args, **options).double().train(training)
    torch.nn.utils.spectral_norm(theirs, n_power_iterations=iterations)
    ours = normed(engine, getattr(nn, name)(*args, **options).train(training), n_power_iterations=iterations)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    for _ in range(3):
        compare(engine, torch, rng, ours, theirs, rng.normal(size=shape), images=len(shape) == 4)
    for key, value in nn.models.to_torch(ours).items():
        np.testing.assert_allclose(np.asarray(value), theirs.state_dict()[key].numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "args", "axis"), [("Linear", (5, 4), 0), ("Conv2d", (3, 4, 2), 0), ("ConvTranspose2d", (3, 4, 2), 3)]
)
def test_the_largest_singular_value_becomes_one(engine: Engine, name: str, args: Any, axis: int) -> None:
    alpha.manual_seed(3)
    layer = normed(engine, getattr(nn, name)(*args), n_power_iterations=500)
    layer(alpha.ones((1, 2, 2, args[0]), dtype=alpha.float64, engine=engine))
    matrix = np.moveaxis(np.asarray(layer.weight), axis, 0).reshape(4, -1)
    # 500 iterations: the second singular value of these weights is below 0.95 of the first, 0.95 ** 1000 < 1e-22.
    assert np.linalg.svd(matrix, compute_uv=False)[0] == pytest.approx(1, rel=1e-12)


def test_power_iteration_in_training_alone(engine: Engine, rng: np.random.Generator) -> None:
    layer = normed(engine, nn.Linear(5, 3))
    x = images(engine, rng, 2, 5)
    before = np.array(layer.weight_u)
    first = np.array(layer.eval()(x).detach())
    np.testing.assert_array_equal(np.asarray(layer.weight_u), before)
    np.testing.assert_array_equal(np.asarray(layer(x)), first)
    layer.train()(x)
    assert not np.array_equal(np.asarray(layer.weight_u), before)


def test_two_forwards_before_a_backward(engine: Engine, rng: np.random.Generator) -> None:
    """As of a discriminator, for true images and made ones: the second power iteration spares the first's graph."""
    layer = normed(engine, nn.Linear(5, 3))
    x = images(engine, rng, 2, 5)
    (layer(x).sum() + layer(x).sum()).backward()
    assert np.isfinite(np.asarray(layer.weight_orig.grad)).all()


def test_training_follows_the_parameter(engine: Engine, rng: np.random.Generator) -> None:
    layer = nn.Linear(5, 3).to(engine)
    opt = optim.SGD(layer.parameters(), lr=0.5)
    weight = layer.weight
    nn.utils.spectral_norm(layer)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight_orig"]
    assert layer.weight_orig is weight  # type: ignore[attr-defined]
    before = np.array(weight.detach())
    x = alpha.tensor(rng.normal(size=(2, 5)).astype(np.float32), engine=engine)
    layer(x).square().sum().backward()
    opt.step()
    assert not np.array_equal(np.asarray(weight), before)


def test_copies_are_apart(engine: Engine, rng: np.random.Generator) -> None:
    layer, x = normed(engine, nn.Conv2d(3, 4, 3)), images(engine, rng, 1, 4, 4, 3)
    layer(x).sum().backward()
    twin = copy.deepcopy(layer)
    twin(x)
    np.testing.assert_array_equal(np.asarray(twin(x)), np.asarray((layer(x), layer(x))[1]))
    u = np.array(layer.weight_u)
    twin(x)
    np.testing.assert_array_equal(np.asarray(layer.weight_u), u)
    nn.utils.remove_spectral_norm(twin)
    assert "weight_orig" in layer.state_dict() and "weight_orig" not in twin.state_dict()


def test_moves_with_its_module(engine: Engine, rng: np.random.Generator) -> None:
    net = nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4), nn.ReLU()).to(engine)
    x = alpha.tensor(rng.normal(size=(2, 4, 4, 3)).astype(np.float32), engine=engine)
    first = np.array(net(x).detach())
    assert first.shape == (2, 2, 2, 4)
    with alpha.no_grad():  # a convolution with hooks is not folded
        assert net.eval()(x).shape == (2, 2, 2, 4)
    assert net.to(alpha.float64)(x.double()).dtype == alpha.float64


def test_removal(engine: Engine, rng: np.random.Generator) -> None:
    layer, x = normed(engine, nn.Linear(5, 3)), images(engine, rng, 2, 5)
    layer(x)
    trained = layer.weight_orig
    expected = np.array(layer.eval()(x).detach())
    assert nn.utils.remove_spectral_norm(layer) is layer
    assert sorted(layer.state_dict()) == ["bias", "weight"] and layer.weight is trained and trained.requires_grad
    np.testing.assert_allclose(np.asarray(layer.train()(x)), expected, rtol=1e-14)
    normed(engine, layer)  # and again
    assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]


def test_a_hook_of_ones_own_stays(engine: Engine, rng: np.random.Generator) -> None:
    layer, seen = nn.Linear(5, 3), []
    layer.register_forward_hook(lambda *_: seen.append(1))
    normed(engine, layer)
    nn.utils.remove_spectral_norm(layer)
    layer(images(engine, rng, 2, 5))
    assert seen == [1]


def test_bad_input(engine: Engine) -> None:
    layer = normed(engine, nn.Linear(5, 3))
    with pytest.raises(
        ArgumentError, match=r"\[spectral_norm\] expected a weight without spectral norm, got weight: a"
    ):
        nn.utils.spectral_norm(layer)
    with pytest.raises(ArgumentError, match=r"\[spectral_norm\] expected a Parameter called scale, got NoneType: name"):
        nn.utils.spectral_norm(layer, "scale")
    with pytest.raises(ShapeError, match=r"\[spectral_norm\] expected a bias of at least 2 axes, got shape \(3,\)"):
        nn.utils.spectral_norm(layer, "bias")
    with pytest.raises(ArgumentError, match=r"\[spectral_norm\] expected n_power_iterations as an integer >= 1, got 0"):
        nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(ArgumentError, match=r"\[spectral_norm\] expected eps > 0, got 0"):
        nn.utils.spectral_norm(nn.Linear(2, 2), eps=0)
    with pytest.raises(ArgumentError, match=r"\[remove_spectral_norm\] expected a spectral norm of weight, got none"):
        nn.utils.remove_spectral_norm(nn.Linear(2, 2))
