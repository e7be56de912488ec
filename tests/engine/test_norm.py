"""BatchNorm with its fusions, and LeakyReLU, against float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.testing import gradcheck
from tests import oracles
from tests.tiers import FLOATS

EPS = 1e-5
SHAPES = [(4, 3, 5, 7), (70, 5, 4, 33), (9, 6), (3, 1, 1, 130), (2, 2, 2)]


def relative(actual: Any, expected: Any) -> float:
    """Largest difference relative to the largest expected value."""
    expected = np.asarray(expected, np.float64)
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


def draw(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """x away from zero mean, so that cancellation would show; all else standard normal."""
    rng = np.random.default_rng(seed)
    data = {name: rng.standard_normal(shape).astype(dtype) for name in ("x", "residual", "dy")}
    data["x"] = (data["x"] * 2 + 3).astype(dtype)
    data |= {name: rng.standard_normal(shape[-1]).astype(dtype) for name in ("weight", "bias")}
    return data


def reference(data: dict[str, np.ndarray[Any, Any]], residual: bool, slope: float | None) -> dict[str, Any]:
    """Values and gradients of the fused function, term by term from the chain rule."""
    d = {name: array.astype(np.float64) for name, array in data.items()}
    axes = tuple(range(d["x"].ndim - 1))
    n = d["x"][..., 0].size
    mean, var = d["x"].mean(axes), d["x"].var(axes)
    std = np.sqrt(var + EPS)
    normal = (d["x"] - mean) / std
    before = oracles.batch_norm(d["x"], d["weight"], d["bias"], EPS) + (d["residual"] if residual else 0)
    positive = before > 0
    out = before if slope is None else np.where(positive, before, slope * before)
    g = d["dy"] if slope is None else np.where(positive, d["dy"], slope * d["dy"])
    dn = g * d["weight"]
    dx = (dn - dn.mean(axes) - normal * (dn * normal).mean(axes)) / std
    return {
        "y": out, "x": dx, "residual": g, "weight": (g * normal).sum(axes), "bias": g.sum(axes),
        "mean": mean, "var": var * n / (n - 1), "near_kink": np.abs(before).min(),
    }  # fmt: skip


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize(("residual", "activation"), list(product([False, True], [None, "relu", "leaky_relu"])))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_training(engine: Engine, dtype: Any, shape: Any, residual: bool, activation: Any, image_order: bool) -> None:
    order = IMAGE_ORDER if image_order and len(shape) == 4 else None
    data = draw(shape, dtype)
    slope = {None: None, "relu": 0.0, "leaky_relu": 0.01}[activation]
    t = {name: alpha.tensor(a, requires_grad=True, engine=engine) for name, a in data.items() if name != "dy"}
    for name in ("x", "residual"):
        t[name] = t[name].detach().contiguous(order).requires_grad_()
    mean, var = alpha.zeros(shape[-1:], dtype=dtype, engine=engine), alpha.ones(shape[-1:], dtype=dtype, engine=engine)
    y = F.batch_norm(
        t["x"], mean, var, t["weight"], t["bias"], True, 0.25, EPS, t["residual"] if residual else None, activation
    )
    y.backward(alpha.tensor(data["dy"], engine=engine))
    expected = reference(data, residual, slope)
    # float32: a dozen roundings on values of size 10, relative to outputs of size 1, are a few 1e-6. With two rows a
    # channel, dx is all cancellation: only float64 can tell.
    forward, gradient = (5e-6, 1e-5) if dtype == np.float32 else (1e-13, 1e-9)
    assert relative(y, expected["y"]) <= forward
    names = ["x", "weight", "bias"] + (["residual"] if residual else [])
    for name in names:
        assert relative(t[name].grad, expected[name]) <= gradient, name
    assert relative(mean, 0.25 * expected["mean"]) <= forward
    assert relative(var, 0.75 + 0.25 * expected["var"]) <= forward


@pytest.mark.parametrize(("residual", "activation"), list(product([False, True], [None, "relu", "leaky_relu"])))
def test_inference(engine: Engine, residual: bool, activation: Any) -> None:
    data = draw((3, 4, 4, 6), np.float64)
    t = {name: alpha.tensor(a, requires_grad=True, engine=engine) for name, a in data.items()}
    mean, var = np.linspace(1, 3, 6), np.linspace(0.5, 2, 6)
    y = F.batch_norm(
        t["x"], alpha.tensor(mean, engine=engine), alpha.tensor(var, engine=engine), t["weight"], t["bias"],
        residual=t["residual"] if residual else None, activation=activation,
    )  # fmt: skip
    slope = {None: 1.0, "relu": 0.0, "leaky_relu": 0.01}[activation]
    scale = data["weight"] / np.sqrt(var + EPS)
    before = (data["x"] - mean) * scale + data["bias"] + (data["residual"] if residual else 0)
    assert relative(y, np.where(before > 0, before, slope * before)) <= 1e-13
    y.backward(t["dy"].detach())
    g = np.where(before > 0, data["dy"], slope * data["dy"])
    assert relative(t["x"].grad, g * scale) <= 1e-13
    assert relative(t["weight"].grad, (g * (data["x"] - mean) / np.sqrt(var + EPS)).sum((0, 1, 2))) <= 1e-12


def test_gradcheck(engine: Engine) -> None:
    data = draw((3, 2, 3, 4), np.float64, seed=5)
    t = [alpha.tensor(data[name], engine=engine) for name in ("x", "weight", "bias", "residual")]
    assert gradcheck(
        lambda x, w, b, r: F.batch_norm(x, None, None, w, b, True, residual=r, activation="leaky_relu"), *t
    )


def test_large_mean_does_not_cancel(engine: Engine) -> None:
    """Mean 1000, deviation 1: a variance from plain sums of squares would lose every digit in float32."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((64, 4, 4, 8)) + 1000).astype(np.float32)
    var = alpha.ones((8,), engine=engine)
    F.batch_norm(alpha.tensor(x, engine=engine), alpha.zeros((8,), engine=engine), var, training=True, momentum=1.0)
    assert relative(var, x.astype(np.float64).var((0, 1, 2), ddof=1)) <= 1e-5


def test_results_do_not_depend_on_threads() -> None:
    from alpha.cpu.engine import CPUEngine

    results = []
    for threads in (1, 2, 3):
        engine = CPUEngine(threads=threads)
        data = draw((64, 9, 9, 20), np.float32)
        t = {name: alpha.tensor(a, requires_grad=True, engine=engine) for name, a in data.items()}
        y = F.batch_norm(t["x"], None, None, t["weight"], t["bias"], True, activation="relu")
        y.backward(t["dy"].detach())
        results.append([np.array(v) for v in (y.detach(), t["x"].grad, t["weight"].grad, t["bias"].grad)])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5])
def test_leaky_relu(engine: Engine, slope: float) -> None:
    values = np.array([[-3.0, -0.0, 0.0, 2.5], [np.nan, 1e30, -1e-30, -7.0]], np.float32)
    x = alpha.tensor(values.T, requires_grad=True, engine=engine)
    y = F.leaky_relu(x, slope)
    np.testing.assert_array_equal(y.detach().numpy(), np.where(values > 0, values, values * np.float32(slope)).T)
    y.backward(alpha.ones(y.shape, engine=engine))
    np.testing.assert_array_equal(np.asarray(x.grad), np.where(values > 0, 1, np.float32(slope)).T)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"activation": "gelu"}, ArgumentError, "gelu"),
        ({"weight": (5,)}, ShapeError, r"weight of shape \(4,\)"),
        ({"residual": (2, 3, 1, 4)}, ShapeError, "residual"),
        ({"input": (1, 1, 1, 4)}, ShapeError, "more than one value per channel"),
        ({"activation": "leaky_relu", "negative_slope": -0.1}, ArgumentError, "negative_slope"),
    ],
)
def test_bad_input(engine: Engine, change: dict[str, Any], error: Any, message: str) -> None:
    arguments: dict[str, Any] = {"input": (2, 3, 3, 4), "running_mean": None, "running_var": None, "training": True}
    arguments |= change
    for name in ("input", "weight", "residual"):
        if isinstance(arguments.get(name), tuple):
            arguments[name] = alpha.ones(arguments[name], engine=engine)
    with pytest.raises(error, match=message):
        F.batch_norm(**arguments)


def test_bad_dtype_and_missing_statistics(engine: Engine) -> None:
    x = alpha.ones((2, 3, 3, 4), engine=engine)
    with pytest.raises(DtypeError, match="float64"):
        F.batch_norm(x, None, None, alpha.ones((4,), dtype=alpha.float64, engine=engine), training=True)
    with pytest.raises(ArgumentError, match="running statistics"):
        F.batch_norm(x, None, None)


@pytest.mark.parametrize("shape", [(6, 4), (70, 5, 4, 33)])
def test_batches_are_counted_in_training_alone(engine: Engine, shape: tuple[int, ...]) -> None:
    """By a batch norm of one call and by one of all threads; a batch without rows is none."""
    x, channels = alpha.ones(shape, engine=engine), shape[-1]
    mean, var = alpha.zeros((channels,), engine=engine), alpha.ones((channels,), engine=engine)
    count = alpha.zeros((), dtype=alpha.int64, engine=engine)
    version = count.version
    for training, expected in ((True, 1), (False, 1), (True, 2)):
        F.batch_norm(x, mean, var, training=training, num_batches_tracked=count)
        assert count.item() == expected
    assert count.version > version
    F.batch_norm(x[:0], mean, var, training=True, num_batches_tracked=count)
    assert count.item() == 2
    for wrong in (alpha.zeros((), engine=engine), alpha.zeros((1,), dtype=alpha.int64, engine=engine)):
        with pytest.raises(ShapeError, match=r"num_batches_tracked of shape \(\) and int64"):
            F.batch_norm(x, mean, var, training=True, num_batches_tracked=wrong)


def test_an_average_over_batches_leaves_out_one_without_rows(engine: Engine) -> None:
    layer = alpha.nn.BatchNorm1d(3, momentum=None).to(engine).train()
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), engine=engine)
    for part in (x[:0], x, x[:0]):
        layer(part)
    np.testing.assert_allclose(np.asarray(layer.running_mean), np.asarray(x).mean(0), rtol=1e-6)
    assert layer.num_batches_tracked.item() == 1
