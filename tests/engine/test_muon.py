"""Muon: its definition in float64, PyTorch's step around the iteration, batches, state, arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, EngineError, ShapeError
from alpha.optim import muon
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
A, B, C = 3.4445, -4.7750, 2.0315

# Wide, tall, square, filters (two of one shape), one row, one column, nothing.
SHAPES = [(4, 9), (9, 4), (6, 6), (5, 3, 3, 4), (5, 3, 3, 4), (1, 7), (7, 1), (3, 0, 2), (0, 2)]
CASES: list[dict[str, Any]] = [
    {},
    {"lr": 0.1, "weight_decay": 0.0, "nesterov": False},
    {"lr": 0.1, "momentum": 0.6, "rescale": True, "weight_decay": 0.3},
    {"lr": 0.2, "momentum": 0.0, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
    {"lr": 0.2, "adjust_lr_fn": "original", "ns_steps": 0, "ns_coefficients": (1.5, -0.5, 0.0), "eps": 1e3},
]
case = pytest.mark.parametrize("options", CASES)


def leaf(engine: Engine, value: Array, order: tuple[int, ...] | None = None) -> alpha.Tensor:
    out = engine.empty(value.shape, value.dtype, order)
    engine.copy(engine.from_numpy(value), out)
    return out.requires_grad_()


def values(x: alpha.Tensor) -> Array:
    return np.array(x.detach())


def iterated(x: Array, coefficients: Any = (A, B, C), steps: int = 5, eps: float = 1e-7) -> Array:
    """The iteration by its definition: on singular values, which each step changes by the polynomial."""
    if not x.size:
        return x
    u, s, v = np.linalg.svd(x, full_matrices=False)
    a, b, c = coefficients
    s = s / max(math.sqrt((s**2).sum()), eps)
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ v


class Definition:
    """One parameter's steps, in float64."""

    def __init__(self, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(A, B, C),  # type: ignore[no-untyped-def]
                 eps=1e-7, ns_steps=5, adjust_lr_fn=None, rescale=False):  # fmt: skip
        self.lr, self.decay, self.momentum, self.nesterov, self.rescale = lr, weight_decay, momentum, nesterov, rescale
        self.iteration = ns_coefficients, ns_steps, eps
        self.adamw = adjust_lr_fn == "match_rms_adamw"
        self.m: Any = 0.0

    def __call__(self, p: Array, g: Array) -> Array:
        if not p.size:
            return p
        shape, p, g = p.shape, p.reshape(len(p), -1), g.reshape(len(p), -1)
        rows, columns = p.shape
        self.m = self.momentum * self.m + (1 - self.momentum) * g
        d = self.momentum * self.m + (1 - self.momentum) * g if self.nesterov else self.m
        factor = 0.2 * math.sqrt(max(rows, columns)) if self.adamw else math.sqrt(max(1, rows / columns))
        if self.rescale:
            p = p * (math.sqrt(rows) / np.linalg.norm(p))
        p = (1 - self.lr * self.decay) * p - self.lr * factor * iterated(d, *self.iteration)
        return p.reshape(shape)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@case
def test_steps_follow_the_definition(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], dtype: str
) -> None:
    start = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    params = [leaf(engine, p) for p in start]
    optimizer, definitions = optim.Muon(params, **options), [Definition(**options) for _ in SHAPES]
    expected: list[Array] = [p.astype(np.float64) for p in start]
    for step in range(6):
        for i, param in enumerate(params):
            if step == 2 and i == 1:  # now and then there is none
                param.grad = None
                continue
            grad = rng.standard_normal(param.shape).astype(dtype)
            param.grad = engine.from_numpy(grad)
            expected[i] = definitions[i](expected[i], grad.astype(np.float64))
        optimizer.step()
    # Each iteration multiplies small singular values, and their errors, by up to 3.4.
    tolerance = 1e-11 if dtype == "float64" else 2e-3
    for param, value in zip(params, expected, strict=True):
        np.testing.assert_allclose(values(param), value, rtol=tolerance, atol=tolerance)
    assert optimizer.steps == 6


@pytest.mark.needs("torch")
@pytest.mark.parametrize("options", CASES[:2] + CASES[3:])
def test_steps_follow_pytorchs(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.optim.Muon itself, but for the dtype of its iteration, which is bfloat16 there."""
    import torch

    theirs = pytest.importorskip("torch.optim._muon")

    def exact(grad: Any, coefficients: Any, steps: int, eps: float) -> Any:
        return torch.from_numpy(iterated(grad.numpy(), coefficients, steps, eps))

    monkeypatch.setattr(theirs, "_zeropower_via_newtonschulz", exact)
    start = [rng.standard_normal(shape) for shape in ((4, 9), (9, 4), (6, 6))]
    ours, others = [leaf(engine, p) for p in start], [torch.nn.Parameter(torch.tensor(p)) for p in start]
    optimizer, reference = optim.Muon(ours, **options), torch.optim.Muon(others, **options)
    for _ in range(6):
        for our, other in zip(ours, others, strict=True):
            grad = rng.standard_normal(our.shape)
            our.grad, other.grad = engine.from_numpy(grad), torch.tensor(grad)
        optimizer.step()
        reference.step()
    for our, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(values(our), other.detach().numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.needs("torch")
def test_names_and_defaults_are_pytorchs() -> None:
    import torch

    ours, theirs = (inspect.signature(kind).parameters for kind in (optim.Muon, torch.optim.Muon))
    assert [*ours] == [*theirs, "rescale"]
    assert [p.default for p in ours.values()] == [*(p.default for p in theirs.values()), False]


def test_orthogonalised(engine: Engine, rng: np.random.Generator) -> None:
    """Singular values near 1, the same singular vectors, and each matrix of a batch by itself."""
    x = rng.standard_normal((2, 3, 5, 8)) * np.array([1e-4, 1.0, 1e6])[:, None, None]
    x[1, 2] = 0
    made = muon.orthogonalised(engine.from_numpy(x))
    found = np.array(made)
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(found[i], iterated(x[i]), rtol=1e-10, atol=1e-10)
        if i != (1, 2):
            assert np.abs(np.linalg.svd(found[i], compute_uv=False) - 1).max() < 0.35
    tall = muon.orthogonalised(engine.from_numpy(x.swapaxes(2, 3)))
    np.testing.assert_allclose(np.array(tall).swapaxes(2, 3), found, rtol=1e-12, atol=1e-12)


def test_one_parameter_that_is_not_finite_leaves_the_others_alone(engine: Engine) -> None:
    params = [leaf(engine, np.eye(3)) for _ in range(3)]
    for param, value in zip(params, (1.0, math.nan, math.inf), strict=True):
        param.grad = engine.from_numpy(np.full((3, 3), value))
    optim.Muon(params, lr=0.1).step()
    assert [bool(np.isfinite(values(p)).all()) for p in params] == [True, False, False]


@case
def test_results_do_not_depend_on_memory_order(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any]
) -> None:
    start = rng.standard_normal((3, 4, 5, 6))
    orders = [None, IMAGE_ORDER, (3, 2, 1, 0)]
    params = [leaf(engine, start, order) for order in orders]
    wide = leaf(engine, np.zeros((3, 4, 5, 12))).detach()
    gappy = wide.strided(0, start.shape, (*wide.strides[:3], 2))  # every second element: not dense
    engine.copy(engine.from_numpy(start), gappy)
    params.append(gappy.requires_grad_())
    optimizer = optim.Muon(params, **options)
    for _ in range(3):
        grad = rng.standard_normal(start.shape)
        for i, param in enumerate(params):
            param.grad = leaf(engine, grad, orders[(i + 1) % 3]).detach()
        optimizer.step()
    for param in params[1:]:
        assert np.array_equal(values(param), values(params[0]))
    assert not values(wide)[..., 1::2].any()  # what lies between the elements is untouched


def test_results_do_not_depend_on_the_number_of_threads_or_on_batches(
    cpu: CPUEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = rng.standard_normal((3, 130, 600)).astype(np.float32)
    before, results = cpu.threads, []
    try:
        for threads, most in ((1, 1 << 26), (before, 1 << 26), (before, 1 << 10)):
            cpu.configure(threads=threads)
            monkeypatch.setattr(muon, "_BATCH_BYTES", most)
            params = [leaf(cpu, p) for p in start]
            optimizer = optim.Muon(params, lr=0.1)
            for _ in range(2):
                for param in params:
                    param.grad = param.detach() * 0.5
                optimizer.step()
            results.append([values(p).tobytes() for p in params])
    finally:
        cpu.configure(threads=before)
    assert results[0] == results[1] == results[2]


def test_its_state_goes_out_and_in(engine: Engine, rng: np.random.Generator) -> None:
    start, grads = rng.standard_normal((5, 6)), rng.standard_normal((6, 5, 6))

    def train(optimizer: optim.Optimizer, param: alpha.Tensor, some: Array) -> None:
        for grad in some:
            param.grad = engine.from_numpy(grad)
            optimizer.step()

    first = leaf(engine, start)
    saved = optim.Muon([first], lr=0.3, momentum=0.7, ns_steps=3, rescale=True)
    train(saved, first, grads[:3])
    second = leaf(engine, values(first), (1, 0))
    loaded = optim.Muon([second]).load_state_dict(saved.state_dict())
    train(saved, first, grads[3:])
    train(loaded, second, grads[3:])
    assert values(first).tobytes() == values(second).tobytes()
    assert loaded.steps == 6 and first.version == 6


def test_a_captured_step_takes_new_rates(engine: Engine) -> None:
    param = leaf(engine, np.eye(3))
    param.grad = engine.from_numpy(np.eye(3))
    optimizer = optim.Muon([param], lr=0.5, weight_decay=0.0)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        optimizer.step()
        return x

    captured = alpha.graph(step, warmup=1)
    for lr in (0.5, 0.5, 0.5, 0.25, 0.25, 0.25):
        optimizer.param_groups[0]["lr"] = lr
        captured(alpha.ones((), engine=engine))
    np.testing.assert_allclose(values(param), np.eye(3) - 2.25 * iterated(np.eye(3)), rtol=1e-12, atol=1e-12)
    assert optimizer.steps == 6


BAD: list[tuple[Callable[[alpha.Tensor], Any], type[Exception], str]] = [
    (lambda p: optim.Muon([p[0].detach()]), ArgumentError, r"^\[Muon\] expected parameters of two axes or more"),
    (lambda p: optim.Muon([p], momentum=1.0), ArgumentError, r"^\[Muon\] expected momentum in \[0, 1\), got 1.0"),
    (lambda p: optim.Muon([p], nesterov=1), ArgumentError, r"^\[Muon\] expected nesterov as True or False"),
    (lambda p: optim.Muon([p], rescale=1), ArgumentError, r"^\[Muon\] expected rescale as True or False"),
    (lambda p: optim.Muon([p], eps=-1.0), ArgumentError, r"^\[Muon\] expected eps >= 0"),
    (lambda p: optim.Muon([p], ns_steps=100), ArgumentError, r"^\[Muon\] expected ns_steps as an int in 0..99"),
    (lambda p: optim.Muon([p], ns_steps=2.0), ArgumentError, r"^\[Muon\] expected ns_steps as an int"),
    (lambda p: optim.Muon([p], ns_coefficients=(1.0, 2.0)), ArgumentError, r"^\[Muon\] expected ns_coefficients as"),
    (lambda p: optim.Muon([p], adjust_lr_fn="mine"), ArgumentError, r"^\[Muon\] expected adjust_lr_fn as one of"),
    (lambda p: muon.orthogonalised(p[0]), ShapeError, r"^\[orthogonalised\] expected matrices \(..., r, c\)"),
    (lambda p: muon.orthogonalised(p.long()), DtypeError, r"^\[orthogonalised\] expected a float tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_wrong_arguments_say_so(
    engine: Engine, call: Callable[[alpha.Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(leaf(engine, np.ones((2, 3))))


def test_wrong_gradients_change_nothing(engine: Engine) -> None:
    one, two = leaf(engine, np.ones((2, 3))), leaf(engine, np.ones((2, 3)))
    optimizer = optim.Muon([one, two])
    one.grad = engine.from_numpy(np.ones((2, 3)))
    for wrong, error in ((np.ones((3, 2)), ShapeError), (np.ones((2, 3), np.float32), DtypeError)):
        two.grad = engine.from_numpy(wrong)
        with pytest.raises(error):
            optimizer.step()
    two.grad = CPUEngine(memory="64MB").from_numpy(np.ones((2, 3)))
    with pytest.raises(EngineError):
        optimizer.step()
    assert one.version == two.version == optimizer.steps == 0 and not optimizer.state
