"""Activations against float64 NumPy and PyTorch: values, gradients, extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "relu": (alpha.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (alpha.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "leaky_relu 0.3": (lambda x: alpha.leaky_relu(x, 0.3), lambda x: np.where(x > 0, x, 0.3 * x)),
    "leaky_relu -0.5": (lambda x: alpha.leaky_relu(x, -0.5), lambda x: np.where(x > 0, x, -0.5 * x)),
    "gelu": (alpha.gelu, lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2),
    "gelu tanh": (
        lambda x: alpha.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (alpha.silu, lambda x: x / (1 + np.exp(-x))),
    "softplus": (alpha.softplus, lambda x: np.log(1 + np.exp(x))),
    "softplus 2": (lambda x: alpha.softplus(x, 2.0), lambda x: np.log(1 + np.exp(2 * x)) / 2),
    "softmax": (lambda x: alpha.softmax(x, -1), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "softmax 0": (lambda x: alpha.softmax(x, 0), lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True)),
    "log_softmax": (lambda x: alpha.log_softmax(x, -1), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    "log_softmax 0": (lambda x: alpha.log_softmax(x, 0), lambda x: x - np.log(np.exp(x).sum(0, keepdims=True))),
}


def away_from_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return (rng.uniform(0.05, 3, shape) * rng.choice([-1, 1], shape)).astype(np.float32)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1,), (2, 1, 3), (0, 4), (7, 33)], ids=str)
def test_values(engine: Engine, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> None:
    function, oracle = ACTIVATIONS[name]
    x = away_from_zero(rng, shape)
    y = function(alpha.tensor(x, engine=engine))
    assert y.dtype == alpha.float32
    # 1 + erf(x) of a negative x loses digits to cancellation: absolute error of a rounding of 1.
    with np.errstate(divide="ignore"):  # of an empty sum
        assert_close(y, oracle(x.astype(np.float64)), rtol=2e-6, atol=5e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients(engine: Engine, rng: np.random.Generator, name: str) -> None:
    function, _ = ACTIVATIONS[name]
    assert gradcheck_on(engine, function, away_from_zero(rng, (2, 1, 3)))
    assert gradcheck_on(engine, function, away_from_zero(rng, (3, 2, 4)).transpose(2, 0, 1))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient_in_float32_is_close_to_float64(engine: Engine, rng: np.random.Generator, name: str) -> None:
    function, _ = ACTIVATIONS[name]
    values, weights = away_from_zero(rng, (16, 10)), rng.uniform(0.5, 1.5, (16, 10)).astype(np.float32)
    grads = []
    for dtype in (np.float32, np.float64):
        x = alpha.tensor(values.astype(dtype), requires_grad=True, engine=engine)
        (function(x) * weights.astype(dtype)).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.numpy().astype(np.float64))
    assert np.abs(grads[0] - grads[1]).max() <= 1e-5 * np.abs(grads[1]).max()


def test_memory_order_is_kept(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.standard_normal((2, 4, 5, 3)).astype(np.float32), engine=engine).contiguous((1, 2, 0, 3))
    for name, (function, oracle) in ACTIVATIONS.items():
        y = function(x)
        assert y.memory_order() == (1, 2, 0, 3), name
        assert_close(y, oracle(x.numpy().astype(np.float64)), rtol=1e-5)


@pytest.mark.needs("torch")
def test_kinks_are_pytorchs(engine: Engine) -> None:
    import torch

    values = np.array([-1.0, 0.0, 2.0], np.float32)
    for name in ("relu", "leaky_relu"):
        x = alpha.tensor(values, requires_grad=True, engine=engine)
        y = torch.tensor(values, requires_grad=True)
        getattr(alpha, name)(x).sum().backward()
        getattr(torch.nn.functional, name)(y).sum().backward()
        assert_close(x.grad, y.grad)


@pytest.mark.needs("torch")
def test_extremes(engine: Engine) -> None:
    import torch

    rows = [[1e4, -1e4, 0.0], [88.0, 89.0, 120.0], [-1e30, -1e30, -1e30], [math.inf, 1.0, 0.0], [-math.inf, 1.0, 0.0]]
    x, y = alpha.tensor(rows, engine=engine), torch.tensor(rows)
    for name in ("softmax", "log_softmax"):
        assert_close(getattr(alpha, name)(x, 1), getattr(torch, name)(y, 1))
    for name in ("softplus", "silu", "gelu"):
        assert_close(getattr(alpha, name)(x[:2]), getattr(torch.nn.functional, name)(y[:2]), atol=1e-30)


def test_errors(engine: Engine) -> None:
    whole = alpha.tensor([1, 2], engine=engine)
    for name in ("leaky_relu", "gelu", "silu", "softplus", "softmax", "log_softmax"):
        with pytest.raises(DtypeError, match=rf"\[{name}\] expected float32 or float64, got int64"):
            getattr(alpha, name)(whole)
    with pytest.raises(ArgumentError, match=r"\[gelu\]"):
        alpha.gelu(alpha.zeros(2, engine=engine), approximate="fast")
    with pytest.raises(ArgumentError, match=r"\[softplus\]"):
        alpha.softplus(alpha.zeros(2, engine=engine), 0)
    with pytest.raises(ShapeError, match=r"\[softmax\]"):
        alpha.softmax(alpha.zeros(2, engine=engine), 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_silu_far_below_zero(engine: Engine, dtype: Any) -> None:
    """x * exp(x) and its slope down to the smallest numbers on the CPU; elsewhere 0 once exp(-x) overflows."""
    values = np.array([-80, -87.5, -88.5, -90, -95, -100, -103, -110, -1000, -3e38], dtype)
    x = alpha.tensor(values, engine=engine, requires_grad=True)
    y = alpha.nn.functional.silu(x)
    y.backward(alpha.ones_like(y))
    wide = values.astype(np.longdouble)
    power = np.exp(wide)
    # Below the normal numbers roundings are multiples of the smallest one; where a sigmoid is lost, 89 * exp(-88.7) is.
    lost = 1.5e-43 if engine.name == "cpu" or dtype == np.float64 else 3e-37
    assert x.grad is not None
    for actual, expected in ((y, wide * power / (1 + power)), (x.grad, power * (1 + wide) + power * power)):
        np.testing.assert_allclose(actual.detach().numpy(), expected.astype(np.float64), rtol=1e-5, atol=lost)


# -- in place ----------------------------------------------------------------------------------------------------

IN_PLACE: dict[str, tuple[float, ...]] = {
    "relu": (), "leaky_relu": (0.2,), "silu": (), "mish": (), "relu6": (), "hardtanh": (-0.5, 0.5), "hardsigmoid": (),
    "hardswish": (), "elu": (0.7,), "celu": (0.7,), "selu": (), "threshold": (0.1, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_activations_write_into_their_argument(engine: Engine, rng: np.random.Generator, name: str) -> None:
    function, numbers = getattr(F, name), IN_PLACE[name]
    values = rng.normal(size=(3, 5))
    plain = alpha.tensor(values, requires_grad=True, engine=engine)
    expected = function(plain, *numbers)
    (expected * expected).sum().backward()
    leaf = alpha.tensor(values, requires_grad=True, engine=engine)
    x = leaf * 1
    written = function(x, *numbers, inplace=True)
    assert written is x
    np.testing.assert_array_equal(np.asarray(x), np.asarray(expected))
    (x * x).sum().backward()
    np.testing.assert_array_equal(np.asarray(leaf.grad), np.asarray(plain.grad))
    outside = alpha.tensor(values, engine=engine)
    assert function(outside, *numbers, inplace=True) is outside
    np.testing.assert_array_equal(np.asarray(outside), np.asarray(expected))
    with pytest.raises(GraphError, match=rf"\[{name}_\] expected a tensor that is not a leaf of the graph"):
        function(leaf, *numbers, inplace=True)
    with pytest.raises(DtypeError, match=rf"\[{name}\] expected float32 or float64, got int64"):
        function(alpha.tensor([1], engine=engine), *numbers, inplace=True)


def test_a_result_in_place_that_is_overwritten_is_noticed(engine: Engine) -> None:
    x = alpha.ones(3, requires_grad=True, engine=engine) * 1
    y = F.relu(x, inplace=True)
    y.add_(1)
    with pytest.raises(GraphError, match=r"\[_relu.backward\] expected the saved tensor .*, got version"):
        y.sum().backward()


def test_layers_write_into_their_argument(engine: Engine, rng: np.random.Generator) -> None:
    """A network computes the same with and without, and what a later layer reads of an earlier one is the new value."""
    values = rng.normal(size=(4, 6))

    def network(inplace: bool) -> nn.Sequential:
        alpha.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(6, 8), nn.ReLU(inplace), nn.Linear(8, 8), nn.LeakyReLU(0.1, inplace)]
        layers += [nn.Dropout(0.3, inplace), nn.Linear(8, 8), nn.SiLU(inplace), nn.Linear(8, 1)]
        return nn.Sequential(*layers).to(engine).to("float64")

    found = []
    for inplace in (False, True):
        net = network(inplace)
        alpha.manual_seed(1)
        net(alpha.tensor(values, engine=engine)).sum().backward()
        found.append([np.asarray(parameter.grad) for parameter in net.parameters()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    x = alpha.tensor(values, engine=engine)
    assert nn.ReLU(inplace=True)(x) is x and (np.asarray(x) >= 0).all()
    assert nn.Dropout(0.5, inplace=True)(x) is x and repr(nn.ReLU(inplace=True)) == "ReLU(inplace=True)"
