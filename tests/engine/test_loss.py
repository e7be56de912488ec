"""Losses: definitions in float64, PyTorch, gradients, extreme values, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.functions as F
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, EngineError, ShapeError
from alpha.testing import assert_close, gradcheck
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
SHAPES = [(5, 4), (1, 1), (1, 7), (33, 10), (3, 5, 4), (2, 3, 2, 3), (4,)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"label_smoothing": 0.1},
    {"label_smoothing": 1.0},
    {"weighted": True},
    {"weighted": True, "label_smoothing": 0.3},
    {"ignored": True},
    {"ignored": True, "weighted": True, "label_smoothing": 0.2},
]


def problem(
    rng: np.random.Generator, shape: tuple[int, ...], options: dict[str, Any]
) -> tuple[Array, Array, dict[str, Any]]:
    """Logits, labels (some of them -100 where asked), and the options with a weight for each class."""
    rest = {key: value for key, value in options.items() if key not in ("weighted", "ignored")}
    logits, labels = rng.standard_normal(shape) * 3, rng.integers(0, shape[-1], shape[:-1])
    if options.get("ignored"):
        labels = np.where(rng.random(labels.shape) < 0.4, -100, labels)
        labels.reshape(-1)[:1] = 0
    if options.get("weighted"):
        rest["weight"] = rng.random(shape[-1]) + 0.5
    return logits, labels, rest


def definition(logits: Array, labels: Array, reduction: str, label_smoothing: float = 0.0, weight: Any = None) -> Array:
    """-sum over classes of the target distribution (times the class's weight) and log softmax, in float64."""
    classes = logits.shape[-1]
    weight = np.ones(classes) if weight is None else weight
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    kept = labels != -100
    onehot = np.eye(classes)[np.where(kept, labels, 0)]
    target = (1 - label_smoothing) * onehot + label_smoothing / classes
    losses = -(target * weight * log_p).sum(-1) * kept
    if reduction == "none":
        return np.asarray(losses)
    scale = (weight[np.where(kept, labels, 0)] * kept).sum() if reduction == "mean" else 1.0
    return np.asarray(losses.sum() / scale)


def on(engine: Engine, values: dict[str, Any], dtype: str) -> dict[str, Any]:
    return {k: engine.from_numpy(v.astype(dtype)) if k == "weight" else v for k, v in values.items()}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_is_the_definition(
    engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], options: dict[str, Any], reduction: str
) -> None:
    logits, labels, rest = problem(rng, shape, options)
    expected = definition(logits, labels, reduction, **rest)
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6)):  # some roundings of sums around 100
        x = engine.from_numpy(logits.astype(dtype))
        loss = F.cross_entropy(x, engine.from_numpy(labels), reduction=reduction, **on(engine, rest, dtype))
        assert loss.dtype == np.dtype(dtype) and loss.shape == expected.shape
        assert_close(loss, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)])
def test_cross_entropy_gradient(
    engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], options: dict[str, Any], reduction: str
) -> None:
    logits, labels, rest = problem(rng, shape, options)
    target, rest = engine.from_numpy(labels), on(engine, rest, "float64")
    assert gradcheck(lambda x: F.cross_entropy(x, target, reduction=reduction, **rest), engine.from_numpy(logits))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_cross_entropy_and_its_gradient_are_pytorchs(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], reduction: str, dtype: str
) -> None:
    import torch

    logits, labels, rest = problem(rng, (33, 10), options)
    a = engine.from_numpy(logits.astype(dtype)).requires_grad_()
    b = torch.tensor(logits.astype(dtype), requires_grad=True)
    ours = F.cross_entropy(a, engine.from_numpy(labels), reduction=reduction, **on(engine, rest, dtype))
    weight = {"weight": torch.tensor(rest["weight"].astype(dtype))} if "weight" in rest else {}
    theirs = torch.nn.functional.cross_entropy(b, torch.tensor(labels), reduction=reduction, **{**rest, **weight})
    tolerance = 1e-13 if dtype == "float64" else 3e-6  # both round: twice the distance to the definition
    assert_close(ours, theirs.detach().numpy(), rtol=tolerance, atol=tolerance)
    grad = rng.standard_normal(ours.shape).astype(dtype)
    ours.backward(engine.from_numpy(grad))
    theirs.backward(torch.tensor(grad))
    assert_close(a.grad, b.grad.numpy(), rtol=tolerance, atol=tolerance)


def test_cross_entropy_of_logits_in_any_memory_order(engine: Engine, rng: np.random.Generator) -> None:
    logits, labels = rng.standard_normal((6, 4)), rng.integers(0, 4, 6)
    x = engine.empty((6, 4), np.dtype(np.float64), (1, 0))
    engine.copy(engine.from_numpy(logits), x)
    x.requires_grad_()
    loss = F.cross_entropy(x, engine.from_numpy(labels))
    assert_close(loss, definition(logits, labels, "mean"))
    loss.backward()
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert_close(x.grad, (p - np.eye(4)[labels]) / 6)


def test_cross_entropy_of_every_pixel_in_image_order(engine: Engine, rng: np.random.Generator) -> None:
    logits, labels = rng.standard_normal((3, 5, 2, 4)), rng.integers(0, 4, (3, 5, 2))
    x = engine.from_numpy(logits).contiguous(IMAGE_ORDER).detach().requires_grad_()
    loss = F.cross_entropy(x, engine.from_numpy(labels))
    assert_close(loss, definition(logits, labels, "mean"))
    loss.backward()
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert_close(x.grad, (p - np.eye(4)[labels]) / labels.size)


def test_cross_entropy_of_large_and_infinite_logits(engine: Engine) -> None:
    labels = engine.from_numpy(np.array([0, 1, 0]))
    huge = np.array([[1e4, -1e4], [1e4, 0.0], [-1e30, -1e30]], np.float32)
    x = engine.from_numpy(huge).requires_grad_()
    loss = F.cross_entropy(x, labels, reduction="none")
    assert_close(loss, [0, 1e4, np.log(2)])
    loss.sum().backward()
    assert_close(x.grad, [[0, 0], [1, -1], [-0.5, 0.5]])
    masked = engine.from_numpy(np.array([[0.0, -np.inf], [0.0, 0.0], [np.inf, 0.0]]))
    loss = F.cross_entropy(masked, labels, reduction="none").numpy()
    assert loss[0] == 0 and np.isnan(loss[2])
    nan = engine.from_numpy(np.array([[np.nan, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    assert np.isnan(F.cross_entropy(nan, labels).item())


def test_an_ignored_row_may_be_anything(engine: Engine) -> None:
    x = engine.from_numpy(np.array([[0.0, 0.0], [np.nan, np.inf]])).requires_grad_()
    loss = F.cross_entropy(x, engine.from_numpy(np.array([1, -100])))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(2))
    assert_close(x.grad.numpy()[0], [0.5, -0.5])  # type: ignore[union-attr]
    other = F.cross_entropy(x, engine.from_numpy(np.array([1, 7])), ignore_index=7)
    assert other.item() == pytest.approx(np.log(2))


def test_no_row_left_gives_nan_as_in_pytorch(engine: Engine) -> None:
    x, target = engine.from_numpy(np.zeros((2, 3))), engine.from_numpy(np.array([-100, -100]))
    assert np.isnan(F.cross_entropy(x, target).item()) and F.cross_entropy(x, target, reduction="sum").item() == 0


def test_a_first_loss_of_ten_equal_classes_is_log_ten(engine: Engine) -> None:
    loss = F.cross_entropy(engine.from_numpy(np.zeros((512, 10), np.float32)), engine.from_numpy(np.arange(512) % 10))
    assert loss.item() == pytest.approx(2.302585, abs=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"ignored": True, "weighted": True}])
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (4,)])
def test_nll_loss(
    engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], options: dict[str, Any], reduction: str
) -> None:
    logits, labels, rest = problem(rng, shape, options)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    x, target, rest_on = engine.from_numpy(log_p), engine.from_numpy(labels), on(engine, rest, "float64")
    assert_close(F.nll_loss(x, target, reduction=reduction, **rest_on), definition(logits, labels, reduction, **rest))
    assert gradcheck(lambda t: F.nll_loss(t, target, reduction=reduction, **rest_on), x)


ALIKE: dict[str, tuple[Callable[..., alpha.Tensor], Callable[..., Array]]] = {
    "mse": (F.mse_loss, lambda x, y: (x - y) ** 2),
    "l1": (F.l1_loss, lambda x, y: abs(x - y)),
    "bce": (
        F.binary_cross_entropy_with_logits,
        lambda x, y: -(y * np.log(1 / (1 + np.exp(-x))) + (1 - y) * np.log(1 - 1 / (1 + np.exp(-x)))),
    ),
}


@pytest.mark.parametrize("shape", [(3, 5), (), (2, 3, 4, 5)])
@pytest.mark.parametrize("kind", ALIKE)
def test_element_wise_losses(engine: Engine, rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> None:
    function, rule = ALIKE[kind]
    x, y = rng.standard_normal(shape) * 2, rng.random(shape)
    for reduction, fold in (("mean", np.mean), ("sum", np.sum), ("none", np.asarray)):
        expected = fold(rule(x, y))
        for dtype in ("float64", "float32"):
            got = function(engine.from_numpy(x.astype(dtype)), engine.from_numpy(y.astype(dtype)), reduction=reduction)
            assert got.dtype == np.dtype(dtype)
            assert_close(got, expected)
        both = [engine.from_numpy(x), engine.from_numpy(y)]
        assert gradcheck(lambda a, b, r=reduction: function(a, b, reduction=r), *both)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ALIKE)
def test_element_wise_losses_are_pytorchs(engine: Engine, rng: np.random.Generator, kind: str) -> None:
    import torch

    theirs = {
        "mse": torch.nn.functional.mse_loss,
        "l1": torch.nn.functional.l1_loss,
        "bce": torch.nn.functional.binary_cross_entropy_with_logits,
    }
    x, y = rng.standard_normal((7, 5)) * 20, rng.random((7, 5)).round()
    x[0, 0] = 0.0
    a, b = engine.from_numpy(x).requires_grad_(), torch.tensor(x, requires_grad=True)
    ours, expected = ALIKE[kind][0](a, engine.from_numpy(y)), theirs[kind](b, torch.tensor(y))
    ours.backward()
    expected.backward()
    assert_close(ours, expected.detach().numpy())
    assert_close(a.grad, b.grad.numpy())


@pytest.mark.needs("torch")
@pytest.mark.parametrize("weight_shape", [(), (5,), (3, 1)])
def test_positive_weights(engine: Engine, rng: np.random.Generator, weight_shape: tuple[int, ...]) -> None:
    import torch

    x, y, w = rng.standard_normal((3, 5)) * 5, rng.random((3, 5)), rng.random(weight_shape) * 4
    w = np.asarray(w)
    target, weight = engine.from_numpy(y), engine.from_numpy(w)
    function = F.binary_cross_entropy_with_logits
    for reduction in ("mean", "sum", "none"):
        expected = torch.nn.functional.binary_cross_entropy_with_logits(
            torch.tensor(x), torch.tensor(y), reduction=reduction, pos_weight=torch.tensor(w)
        )
        assert_close(function(engine.from_numpy(x), target, reduction=reduction, pos_weight=weight), expected)
    assert gradcheck(lambda a, b: function(a, b, pos_weight=weight), engine.from_numpy(x), target)


def test_binary_cross_entropy_of_large_logits(engine: Engine) -> None:
    x = np.array([-1e4, 1e4, -1e4, 1e4, 0.0], np.float32)
    y = np.array([0, 1, 1, 0, 1], np.float32)
    logits = engine.from_numpy(x).requires_grad_()
    loss = F.binary_cross_entropy_with_logits(logits, engine.from_numpy(y), reduction="none")
    loss.sum().backward()
    assert_close(loss, [0, 0, 1e4, 1e4, np.log(2)])
    assert_close(logits.grad, [0, 0, -1, 1, -0.5])


Tensors = dict[str, alpha.Tensor]
ERRORS: list[tuple[Callable[[Tensors], Any], type[Exception], str]] = [
    (
        lambda t: F.cross_entropy(t["x"], t["bad"]),
        ArgumentError,
        r"^\[cross_entropy\] expected labels in 0..3 for 4 classes, got 4 at row 1: ",
    ),
    (lambda t: F.nll_loss(t["x"], t["bad"]), ArgumentError, r"^\[nll_loss\] expected labels in 0..3 .*, got 4 at"),
    (lambda t: F.cross_entropy(t["x"], t["y"].int()), DtypeError, r"^\[cross_entropy\] expected int64 .*, got int32"),
    (lambda t: F.cross_entropy(t["x"], [0, 1, 2]), DtypeError, r"^\[cross_entropy\] expected int64 .*, got list"),  # type: ignore[arg-type]
    (lambda t: F.cross_entropy(t["y"], t["y"]), DtypeError, r"^\[cross_entropy\] expected input as a float32"),
    (
        lambda t: F.cross_entropy(t["x"], t["y"][:2]),
        ShapeError,
        r"^\[cross_entropy\] expected input \(..., classes\) and target .* input: \(3, 4\) and target: \(2,\)",
    ),
    (lambda t: F.cross_entropy(t["x"], t["y"], reduction="avg"), ArgumentError, r'expected reduction "mean"'),
    (lambda t: F.cross_entropy(t["x"], t["y"], label_smoothing=2), ArgumentError, r"label_smoothing in 0..1, got 2"),
    (lambda t: F.cross_entropy(t["x"], t["y"], weight=t["x"][0, :3]), ShapeError, r"expected weight: \(4,\) float64"),
    (lambda t: F.mse_loss(t["x"], t["x"][:2]), ShapeError, r"^\[mse_loss\] expected shapes that broadcast .*\(2, 4\)"),
    (lambda t: F.mse_loss(t["y"], t["x"]), DtypeError, r"^\[mse_loss\] expected input as a float32"),
    (lambda t: F.mse_loss(t["x"], 1.0), DtypeError, r"^\[mse_loss\] expected a Tensor, got float"),  # type: ignore[arg-type]
    (
        lambda t: F.binary_cross_entropy_with_logits(t["x"], t["x"], pos_weight=t["x"][0, :3]),
        ShapeError,
        r"^\[binary_cross_entropy_with_logits\] expected pos_weight that broadcasts to x: \(3, 4\), got \(3,\)",
    ),
    (
        lambda t: F.binary_cross_entropy_with_logits(t["x"], t["x"], pos_weight=t["x"].detach().requires_grad_()),
        ArgumentError,
        r"^\[binary_cross_entropy_with_logits\] expected pos_weight outside the graph",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_wrong_arguments_say_so(
    engine: Engine, call: Callable[[Tensors], Any], error: type[Exception], message: str
) -> None:
    labels = np.array([0, 3, 1])
    tensors = {
        "x": engine.from_numpy(np.zeros((3, 4))),
        "y": engine.from_numpy(labels),
        "bad": engine.from_numpy(labels + np.array([0, 1, -1])),
    }
    with pytest.raises(error, match=message) as caught:
        call(tensors)
        engine.synchronize()  # a device says which label is wrong when the host waits for it
    assert "\n" not in str(caught.value)


def test_engines_do_not_mix(engine: Engine) -> None:
    from alpha.cpu.engine import CPUEngine

    other = CPUEngine(memory="64MB")
    x, y = engine.from_numpy(np.zeros((2, 3))), np.zeros(2, np.int64)
    for call in (
        lambda: F.cross_entropy(x, other.from_numpy(y)),
        lambda: F.mse_loss(x, other.from_numpy(np.zeros((2, 3)))),
    ):
        with pytest.raises(EngineError, match="expected tensors of one engine"):
            call()


def test_graphs_can_be_walked_twice(engine: Engine, rng: np.random.Generator) -> None:
    x = engine.from_numpy(rng.standard_normal((4, 3))).requires_grad_()
    loss = F.cross_entropy(x, engine.from_numpy(np.array([0, 1, 2, 0])))
    grads = []
    for retain in (True, False):
        x.grad = None
        loss.backward(retain_graph=retain)
        grads.append(np.array(x.grad.numpy()))  # type: ignore[union-attr]
    assert np.array_equal(*grads)


def test_reductions_agree(engine: Engine, rng: np.random.Generator) -> None:
    for shape, (function, _) in itertools.product([(3, 4), (6,)], ALIKE.values()):
        x, y = engine.from_numpy(rng.standard_normal(shape)), engine.from_numpy(rng.random(shape))
        none = function(x, y, reduction="none").numpy()
        assert_close(function(x, y), none.mean())
        assert_close(function(x, y, reduction="sum"), none.sum())


def test_the_engine_checks_rows_and_scales(cpu: CPUEngine) -> None:
    p, labels = alpha.ones(3, 4, engine=cpu), alpha.zeros(3, dtype=alpha.int64, engine=cpu)
    with pytest.raises(ShapeError, match=r"expected rows \(N, C\), C >= 1"):
        cpu.cross_entropy(alpha.ones(3, 0, engine=cpu), labels, 0.0)
    with pytest.raises(ShapeError, match=r"expected one scale per row, \(3,\), got \(4,\)"):
        cpu.cross_entropy_grad(p, labels, alpha.ones(4, engine=cpu), 0.0)
