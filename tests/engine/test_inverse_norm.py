"""BatchNorm whose backward recovers its input from its result: gradients against float64, limits, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn, optim
from alpha import functions as F
from alpha.cpu import normalisation
from alpha.cpu.engine import CPUEngine
from alpha.cpu.normalisation import CONDITION
from alpha.engine import IMAGE_ORDER
from alpha.errors import GraphError
from alpha.testing import gradcheck
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]
EPS = 1e-5
SHAPES = [(4, 3, 5, 7), (70, 5, 4, 33), (19, 6), (33, 1, 1, 130), (6, 2, 2, 1)]
SLOPES = [None, 0.01, 0.2, 1.0, 3.0]


@pytest.fixture(autouse=True)
def no_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors keep their input, which costs little: here all are treated as large ones."""
    monkeypatch.setattr(normalisation, "SMALL", 0)


def draw(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> dict[str, Array]:
    """x with a mean beside its deviation, weights of both signs away from zero."""
    rng = np.random.default_rng(seed)
    data = {name: rng.standard_normal(shape) for name in ("x", "residual", "dy")}
    data["x"] = data["x"] * 2 + 3
    data["weight"] = rng.uniform(0.4, 2, shape[-1]) * rng.choice([-1.0, 1.0], shape[-1])
    data["bias"] = rng.standard_normal(shape[-1])
    return {name: array.astype(dtype) for name, array in data.items()}


def reference(
    data: dict[str, Array], residual: bool, slope: float | None, affine: bool = True, training: bool = True
) -> dict[str, Array]:
    """Gradients in float64, term by term from the chain rule; without ``training`` mean 0 and variance 1 are given."""
    d = {name: array.astype(np.float64) for name, array in data.items()}
    axes = tuple(range(d["x"].ndim - 1))
    weight, bias = (d["weight"], d["bias"]) if affine else (1.0, 0.0)
    mean, var = (d["x"].mean(axes), d["x"].var(axes)) if training else (0.0, 1.0)
    std = np.sqrt(var + EPS)
    normal = (d["x"] - mean) / std
    before = normal * weight + bias + (d["residual"] if residual else 0)
    g = d["dy"] if slope is None else np.where(before > 0, d["dy"], slope * d["dy"])
    dn = g * weight
    dx = (dn - dn.mean(axes) - normal * (dn * normal).mean(axes)) / std if training else dn / std
    return {"x": dx, "residual": g, "weight": (g * normal).sum(axes), "bias": g.sum(axes)}


def relative(actual: Any, expected: Array) -> float:
    """Largest difference relative to the largest expected value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


class Run:
    """A fused BatchNorm, and a product behind it that saves the result as a convolution does."""

    def __init__(
        self,
        engine: CPUEngine,
        data: dict[str, Array],
        residual: bool,
        slope: float | None,
        affine: bool = True,
        training: bool = True,
        image_order: bool = False,
    ) -> None:
        order = IMAGE_ORDER if image_order and data["x"].ndim == 4 else None
        t = {name: alpha.tensor(array, engine=engine) for name, array in data.items()}
        self.tensors = {name: a.contiguous(order if a.ndim == 4 else None).requires_grad_() for name, a in t.items()}
        t, channels = self.tensors, data["x"].shape[-1:]
        constants = [make(channels, dtype=data["x"].dtype, engine=engine) for make in (alpha.zeros, alpha.ones)]
        self.y = F.batch_norm(
            t["x"], *constants, t["weight"] if affine else None, t["bias"] if affine else None, training, 0.1, EPS,
            t["residual"] if residual else None, None if slope is None else "leaky_relu", slope or 0.0,
        )  # fmt: skip
        self.node: Any = self.y._node
        self.product = self.y * t["dy"]
        self.keeps_x = self.node._saved[0] is not None

    def gradients(self, *names: str) -> dict[str, Array]:
        """The arguments' gradients, where the result's gradient is dy."""
        self.product.backward(alpha.ones(self.product.shape, dtype=self.product.dtype, engine=self.product.engine))
        return {name: np.asarray(self.tensors[name].grad) for name in names}


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients(
    cpu: CPUEngine, dtype: Any, shape: Any, residual: bool, slope: float | None, image_order: bool
) -> None:
    data = draw(shape, dtype)
    run = Run(cpu, data, residual, slope, image_order=image_order)
    # A residual without an activation goes the usual way: nobody else keeps the result.
    assert run.keeps_x == (residual and slope is None)
    names = ["x", "weight", "bias", *(["residual"] if residual else [])]
    expected = reference(data, residual, slope)
    for name, found in run.gradients(*names).items():
        assert relative(found, expected[name]) <= (1e-5 if dtype == np.float32 else 1e-12), name


@pytest.mark.parametrize("slope", [None, 0.01])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_without_weight_and_with_given_statistics(
    cpu: CPUEngine, residual: bool, slope: float | None, training: bool
) -> None:
    data = draw((9, 4, 3, 5), np.float32, seed=1)
    data["x"] = data["x"] - np.float32(3) if not training else data["x"]
    for affine in (False, True):
        run = Run(cpu, data, residual, slope, affine, training)
        assert run.keeps_x == (residual and slope is None)
        expected = reference(data, residual, slope, affine, training)
        names = ["x", *(["residual"] if residual else []), *(["weight", "bias"] if affine else [])]
        for name, found in run.gradients(*names).items():
            assert relative(found, expected[name]) <= 1e-5, name


def test_gradcheck(cpu: CPUEngine) -> None:
    data = draw((3, 2, 3, 4), np.float64, seed=5)
    t = [alpha.tensor(data[name], engine=cpu) for name in ("x", "weight", "bias", "residual")]

    def twice(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        y = F.batch_norm(x, None, None, w, b, True, activation="leaky_relu", negative_slope=0.3)
        return F.batch_norm(y * w, None, None, w, b, True, residual=r, activation="leaky_relu") * r

    assert gradcheck(twice, *t)


SPOILT = {
    "a weight of zero": ("weight", 0.0),
    "a tiny weight": ("weight", 1e-4),
    "a weight next to nothing": ("weight", 1e-36),
    "a large bias": ("bias", 100.0),
    "a large residual": ("residual", 300.0),
    "a large mean": ("x", 1e3),
    "a weight that is no number": ("weight", np.nan),
}


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_one_bad_channel_keeps_the_input(cpu: CPUEngine, spoilt: str) -> None:
    name, value = SPOILT[spoilt]
    data = draw((40, 3, 3, 10), np.float32, seed=2)
    if name == "x":
        data["x"][..., 4] += np.float32(value)
    else:
        data[name][..., 4] = value
    run = Run(cpu, data, True, 0.01)
    assert run.keeps_x
    expected = reference(data, True, 0.01)
    if not np.isnan(value):
        for name, found in run.gradients("x", "weight", "bias", "residual").items():
            others = np.arange(10) != 4 if spoilt == "a large mean" else slice(None)  # x itself is rounded there
            assert relative(found[..., others], expected[name][..., others]) <= 1e-5, name


@pytest.mark.parametrize("name", ["bias", "residual"])
def test_the_condition_holds_the_bound(cpu: CPUEngine, name: str) -> None:
    """Just within the condition gradients are as exact as asked; just beyond it the input is kept."""
    rng = np.random.default_rng(3)
    for factor in (0.9, 1.1):
        data = draw((64, 8, 8, 24), np.float32, seed=3)
        data["weight"][:] = rng.uniform(0.5, 1, 24)
        data["bias"][:] = 0
        data["x"] -= np.float32(3)
        part = rng.standard_normal(data[name].shape) if name == "residual" else np.ones(24)
        data[name] = (part * CONDITION * factor * data["weight"]).astype(np.float32)
        run = Run(cpu, data, name == "residual", 0.01)
        assert run.keeps_x == (factor > 1)
        expected = reference(data, name == "residual", 0.01)
        for variable, found in run.gradients("x", "weight", "bias").items():
            assert relative(found, expected[variable]) <= 1e-5, variable


def test_relu_and_unrecorded_calls_are_as_before(cpu: CPUEngine) -> None:
    data = draw((8, 3, 3, 4), np.float32)
    assert Run(cpu, data, True, 0.0).keeps_x and Run(cpu, data, False, 0.0).keeps_x
    recorded = Run(cpu, data, True, 0.2).y
    with alpha.no_grad():
        t = {name: alpha.tensor(a, engine=cpu) for name, a in data.items()}
        y = F.batch_norm(t["x"], None, None, t["weight"], t["bias"], True, 0.1, EPS, t["residual"], "leaky_relu", 0.2)
    assert np.array_equal(y.numpy(), recorded.detach().numpy())


def test_the_result_may_be_overwritten_until_somebody_saves_it(cpu: CPUEngine) -> None:
    data = draw((8, 3, 3, 4), np.float32)
    x, dy = (alpha.tensor(data[name], requires_grad=True, engine=cpu) for name in ("x", "dy"))
    expected = None
    for in_place in (False, True):
        y = F.batch_norm(x, None, None, training=True)
        node: Any = y._node
        if in_place:
            y += 1
        else:
            y = y + 1
        product = y * dy  # saves what y has become
        assert node._saved[0] is not None
        x.grad = None
        product.backward(alpha.ones(product.shape, engine=cpu))
        found = np.array(x.grad)
        assert expected is None or np.array_equal(found, expected)
        expected = found
    y = F.batch_norm(x, None, None, training=True)
    product = y * dy
    with alpha.no_grad():
        y += 1
    with pytest.raises(GraphError, match="overwrote"):
        product.backward(alpha.ones(product.shape, engine=cpu))


def test_who_saves_nothing_or_outside_the_graph_takes_nothing(cpu: CPUEngine) -> None:
    x = alpha.tensor(draw((8, 4), np.float32)["x"], requires_grad=True, engine=cpu)
    y = F.batch_norm(x, None, None, training=True)
    node: Any = y._node
    with alpha.no_grad():
        F.gelu(y)
    F.max_pool2d(y.reshape((8, 1, 1, 4)), 1)
    assert node._saved[0] is not None
    F.gelu(y)
    assert node._saved[0] is None


def test_a_saved_result_does_not_keep_the_graph_alive(cpu: CPUEngine) -> None:
    before = cpu.memory.in_use
    x = alpha.tensor(np.ones((2, 600_000), np.float32), requires_grad=True, engine=cpu)
    kept = F.batch_norm(x, None, None, training=True).detach()
    del x
    assert cpu.memory.in_use - before < 1.5 * kept.numel() * 4


def test_the_input_is_freed_at_once() -> None:
    """conv, BatchNorm, conv, BatchNorm with the shortcut: of each pair one activation stays."""
    c, cpu = 32, CPUEngine()
    convs = [nn.Conv2d(c, c, 3, padding=1, bias=False).to(cpu) for _ in range(2)]
    norms = [nn.BatchNorm2d(c).to(cpu) for _ in range(2)]
    x = alpha.tensor(np.random.default_rng(0).standard_normal((256, 16, 16, c)).astype(np.float32), engine=cpu)
    x = x.contiguous(IMAGE_ORDER).requires_grad_()
    one = x.numel() * 4
    cpu.memory.reset_peak()
    before = cpu.memory.in_use
    y = norms[0](convs[0](x), activation="leaky_relu")
    y = norms[1](convs[1](y), residual=x, activation="leaky_relu")
    assert 2 * one <= cpu.memory.in_use - before <= 2.3 * one
    assert cpu.memory.peak - before <= 3.3 * one  # a block may be larger than asked for


def test_two_runs_and_any_threads_are_equal_to_the_bit() -> None:
    results = []
    for threads in (1, 2, 2, 3):
        run = Run(CPUEngine(threads=threads), draw((64, 9, 9, 20), np.float32), True, 0.1)
        assert not run.keeps_x
        results.append(run.gradients("x", "weight", "bias", "residual"))
    for other in results[1:]:
        assert all(np.array_equal(results[0][name], other[name]) for name in other)


def test_training_takes_nothing_from_the_system_once_it_runs() -> None:
    """The second step needs room for the optimizer's state beside the activations; from then on all is there."""
    engine = CPUEngine(threads=2)
    alpha.manual_seed(0)
    net = nn.models.resnet18(10, "paper", base_width=8).to(engine).train()
    optimizer = optim.Adam(net.parameters())
    rng = np.random.default_rng(0)
    images = alpha.tensor(rng.standard_normal((32, 32, 32, 3)).astype(np.float32), engine=engine)
    labels = alpha.tensor(rng.integers(0, 10, 32), engine=engine)
    peaks = []
    for step in range(5):
        engine.memory.reset_peak()
        held = engine.memory.held
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= 2:
            assert engine.memory.hits == engine.memory.requests and engine.memory.held == held
            peaks.append(engine.memory.peak)
    assert max(peaks) - min(peaks) <= 1 << 20  # which block of a size serves varies, not more


IN_PLACE = {
    "relu": lambda y: F.relu(y, inplace=True),
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1, inplace=True),
    "elu": lambda y: alpha.nn.functional.elu(y, inplace=True),
    "hardswish": lambda y: alpha.nn.functional.hardswish(y, inplace=True),
    "silu": lambda y: F.silu(y, inplace=True),
    "tanh_": lambda y: y.tanh_(),
    "mul_": lambda y: y.mul_(y.detach().clone()),
    "a view": lambda y: (y[:, 1:].sigmoid_(), y)[1],
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_function_in_place_behind_it(name: str) -> None:
    """What is saved by a function that overwrites the result is no result any more."""
    data = draw((4, 3, 5, 7), np.float64)
    grads = []
    for clones in (False, True):
        x, weight, bias = (alpha.tensor(data[key]).requires_grad_() for key in ("x", "weight", "bias"))
        y = F.batch_norm(x, None, None, weight, bias, training=True)
        out = IN_PLACE[name](y.clone() if clones else y)
        (out * alpha.tensor(data["dy"])).sum().backward()
        grads.append([np.asarray(one.grad) for one in (x, weight, bias)])
    for mine, expected in zip(*grads, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-11)
