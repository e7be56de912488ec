"""linear with an activation: one pass, and the bits of two, forward and backward, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.cpu import product_planner
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError
from alpha.nn import functional as F
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]


@alpha.pointwise
def cubed(x: Any) -> Any:
    return x * x * x


def mish(x: Any) -> Any:
    """A plain function of point-wise ones."""
    return x * alpha.tanh(F.softplus(x))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh gelu": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": alpha.sigmoid,
    "leaky relu": partial(F.leaky_relu, negative_slope=0.2),
    "user's own": cubed,
    "plain": mish,
    "identity": lambda x: x,
    "constant": lambda x: x * 0.0 + 3.0,
}


def linear(activation: Callable[[Any], Any], *tensors: alpha.Tensor) -> alpha.Tensor:
    """The function with or without a bias."""
    return F.linear(tensors[0], tensors[1], tensors[2] if len(tensors) == 3 else None, activation)


def results(engine: Engine, arrays: tuple[Array, ...], run: Callable[..., alpha.Tensor]) -> list[Array]:
    """The result, and the gradients of the sum of its squares."""
    tensors = [alpha.tensor(a, engine=engine, requires_grad=True) for a in arrays]
    y = run(*tensors)
    (y * y).sum().backward()
    grads = [t.grad for t in tensors]
    return [np.array(y.detach()), *[np.array(g) for g in grads if g is not None]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bits_are_those_of_two_steps(engine: Engine, rng: np.random.Generator, name: str, dtype: Any) -> None:
    activation = ACTIVATIONS[name]
    for shape, out in (((5, 7), 33), ((1, 7), 4), ((2, 3, 7), 5), ((150, 90), 70), ((7,), 3)):
        arrays = tuple(rng.standard_normal(s).astype(dtype) for s in (shape, (out, shape[-1]), (out,)))
        for given in (arrays, arrays[:2]):
            one = results(engine, given, partial(linear, activation))
            two = results(engine, given, lambda *t: activation(F.linear(*t)))
            assert len(one) == len(two) == len(given) + 1
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)
        with alpha.no_grad():
            tensors = [alpha.tensor(a, engine=engine) for a in arrays]
            first, second = (np.array(linear(activation, *tensors)) for _ in range(2))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["gelu", "tanh gelu", "silu", "plain"])
def test_gradients(engine: Engine, rng: np.random.Generator, name: str) -> None:
    x, w, b = (rng.standard_normal(s) for s in ((4, 3), (6, 3), (6,)))
    activation = ACTIVATIONS[name]
    assert gradcheck_on(engine, lambda x, w, b: F.linear(x, w, b, activation), x, w, b)
    assert gradcheck_on(engine, lambda x, w: F.linear(x, w, None, activation), x, w)


def test_the_gradient_of_a_step_is_zero(engine: Engine, rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (6, 3)))
    y, *grads = results(engine, (x, w), partial(linear, lambda x: alpha.where(x > 0, 1.0, 0.0)))
    np.testing.assert_array_equal(y, x @ w.T > 0)
    assert [g.shape for g in grads] == [x.shape, w.shape] and not any(g.any() for g in grads)


def test_of_nothing(engine: Engine) -> None:
    x, w, b = (alpha.zeros(*shape, engine=engine) for shape in ((0, 3), (4, 3), (4,)))
    assert F.linear(x, w, b, F.gelu).shape == (0, 4)
    x, w = alpha.zeros(5, 0, engine=engine), alpha.zeros(4, 0, engine=engine)
    result = F.linear(x, w, b + 1, lambda x: x + 1)
    assert result.shape == (5, 4) and bool((result == 2).all())


@pytest.mark.parametrize("name", ["tiles", "blas", "pixels"])
@pytest.mark.parametrize("rows", [60, 700])
def test_each_algorithm_has_the_epilogue(rng: np.random.Generator, name: str, rows: int) -> None:
    """On any number of threads; by ``tiles`` the result is never read again."""
    found: set[bytes] = set()
    arrays = tuple(rng.standard_normal(s).astype(np.float32) for s in ((rows, 40), (90, 40), (90,)))
    for threads in (1, 2, 3):
        engine = alpha.engine("cpu", threads=threads)
        with product_planner.use(name):
            found.add(b"".join(a.tobytes() for a in results(engine, arrays, partial(linear, mish))))
    assert len(found) == 1
    x, w, b = arrays
    z = x.astype(np.float64) @ w.T + b
    with product_planner.use(name):
        y = linear(mish, *[alpha.tensor(a) for a in arrays])
    np.testing.assert_allclose(np.asarray(y), z * np.tanh(np.log1p(np.exp(z))), rtol=1e-5, atol=1e-4)


def test_tiles_make_no_second_pass(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = alpha.engine("cpu", threads=2)
    tensors = [alpha.tensor(rng.standard_normal(s).astype(np.float32), engine=engine) for s in ((200, 40), (90, 40))]
    passes: list[str] = []
    inner = type(engine).pointwise

    def pointwise(self: Any, function: str, *rest: Any) -> Any:
        passes.append(function)
        return inner(self, function, *rest)

    monkeypatch.setattr(type(engine), "pointwise", pointwise)
    linear(F.gelu, *tensors)
    assert passes == []
    with product_planner.use("blas"):
        F.linear(tensors[0][:2], tensors[1], activation=F.gelu)
    assert passes == ["gelu"]


def test_only_what_the_gradient_reads_is_kept(cpu: CPUEngine, rng: np.random.Generator) -> None:
    """ReLU's is computed from the result, so what it was given is overwritten; GELU's needs it."""
    rows, columns = 2000, 1000
    x, w = (alpha.tensor(rng.standard_normal(s).astype(np.float32), engine=cpu) for s in ((rows, 8), (columns, 8)))
    w.requires_grad = True
    for activation, tensors in ((F.relu, 1), (F.gelu, 2)):
        before = cpu.memory.in_use
        y = F.linear(x, w, activation=activation)
        assert tensors <= (cpu.memory.in_use - before) / (4 * rows * columns) < tensors + 0.1
        del y


def test_what_is_no_activation(engine: Engine) -> None:
    x, w = alpha.zeros(2, 3, engine=engine), alpha.zeros(4, 3, engine=engine)
    with pytest.raises(ArgumentError, match=r"\[linear\] expected activation as a function of one tensor, got 'gelu'"):
        F.linear(x, w, activation="gelu")  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"\[linear\] expected activation to give floats, got .*, which gives bools"):
        F.linear(x, w, activation=lambda x: x > 0)
    with pytest.raises(ArgumentError, match=r"expected point-wise operations alone"):
        F.linear(x, w, activation=F.softmax)


# -- layers ------------------------------------------------------------------------------------------------------

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "LeakyReLU": lambda: nn.LeakyReLU(0.3),
    "LeakyReLU below 0": lambda: nn.LeakyReLU(-0.3),
    "GELU": nn.GELU,
    "GELU tanh": lambda: nn.GELU("tanh"),
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_sequential_joins_them(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """The bits are those of the layers one after another, and so are the gradients."""
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 20), LAYERS[name](), nn.Linear(20, 5), nn.Softmax(-1)).to(engine)
    x = alpha.tensor(rng.standard_normal((9, 7)).astype(np.float32), engine=engine)
    found = []
    for is_joined in (True, False):
        y = x
        for layer in [net] if is_joined else list(net):
            y = layer(y)
        net.zero_grad()
        y.square().sum().backward()
        found.append([np.array(y.detach()), *[np.array(p.grad) for p in net.parameters()]])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_hooks_and_replaced_forwards_are_called(engine: Engine) -> None:
    seen: list[str] = []

    class Loud(nn.GELU):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            seen.append("subclass")
            return super().forward(x)

    x = alpha.ones(2, 3, engine=engine)
    nn.Sequential(nn.Linear(3, 3), Loud()).to(engine)(x)
    net = nn.Sequential(nn.Linear(3, 3), nn.GELU()).to(engine)
    handle = net[0].register_forward_hook(lambda module, args, out: seen.append("hook"))
    net(x)
    handle.remove()
    net(x)
    assert seen == ["subclass", "hook"]
