"""Infinities, NaN, zeros of both signs, the largest and smallest numbers: every function gives PyTorch's values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import linalg, nn, optim
from alpha.engine import Engine
from tests.robustness.functions import EXCLUDED, RECORDS, Record
from tests.robustness.records import RECORDS as CAMPAIGN
from tests.robustness.registry import EXCLUDED as NOT_IN_THE_CAMPAIGN
from tests.robustness.values import Array, Sample, different, is_float, samples, several

INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def test_every_public_function_is_in_the_table() -> None:
    public = {*alpha.functions.__all__, *F.__all__, *linalg.__all__}
    covered = {record.name for record in RECORDS}
    # The campaign's records draw special values too, and compare with PyTorch where they have a peer.
    campaign = (
        {record.name.rpartition(".")[2] for record in CAMPAIGN}
        | {name.rpartition(".")[2] for record in CAMPAIGN for name in record.covers}
        | {name.rpartition(".")[2] for name in NOT_IN_THE_CAMPAIGN}
    )
    assert not public - covered - set(EXCLUDED) - campaign, "write a record, or say in EXCLUDED why there is none"
    assert not (covered | set(EXCLUDED)) - public, "no such function"
    assert not covered & set(EXCLUDED)
    names = [str(record) for record in RECORDS]
    assert len(names) == len(set(names))


# -- against PyTorch ---------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("record", [record for record in RECORDS if record.special], ids=str)
def test_values_and_gradients_are_pytorchs(record: Record) -> None:
    import torch

    for dtype in (np.float32, np.float64):
        for sample in samples(record, dtype):
            for name, ours, theirs in _both(torch, record, sample):
                assert ours.shape == theirs.shape, name
                found = np.argwhere(different(record, ours, theirs, sample.arguments))
                if len(found):
                    place = tuple(found[0])
                    pytest.fail(
                        f"{name} of {dtype.__name__} differs at {len(found)} places, the first {place}: "
                        f"{ours[place]} where PyTorch has {theirs[place]}, of {sample.arguments!r:.2000}"
                    )


def _both(torch: Any, record: Record, sample: Sample) -> list[tuple[str, Array, Array]]:
    """Results and gradients of both sides, by name."""
    rng = np.random.default_rng(1)
    mine, found = [alpha.tensor(x) for x in sample.arguments], [torch.tensor(x) for x in sample.arguments]
    wanted = [i for i, spec in enumerate(record.shapes) if record.gradient and is_float(spec) and spec[-1] != "+"]
    for i in wanted:
        mine[i].requires_grad_()
        found[i].requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own: a variance of one element
        theirs = several(record.theirs(torch, *found))
    ours = several(record.ours(*mine))
    assert len(ours) == len(theirs)
    rows = [
        (f"result {i}", np.array(a.detach()), b.detach().numpy())
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    flowing = [(a, b) for a, b in zip(ours, theirs, strict=True) if b.requires_grad]
    if not flowing:
        return rows
    gradients = [_gradient(sample, b, rng) for _, b in flowing]
    torch.autograd.backward([b for _, b in flowing], [torch.tensor(g) for g in gradients])
    if len(flowing) == 1:
        flowing[0][0].backward(alpha.tensor(gradients[0]))
    else:
        sum((a * alpha.tensor(g)).sum() for (a, _), g in zip(flowing, gradients, strict=True)).backward()  # type: ignore[union-attr]
    for i in wanted:
        expected = np.zeros_like(sample.arguments[i]) if found[i].grad is None else found[i].grad.numpy()
        rows.append((f"gradient {i}", np.array(mine[i].grad), expected))
    return rows


def _gradient(sample: Sample, result: Any, rng: np.random.Generator) -> Array:
    """The sample's gradient, or a drawn one, as an array like the result."""
    dtype = result.detach().numpy().dtype
    if sample.gradient is not None and sample.gradient.shape == tuple(result.shape):
        return sample.gradient.astype(dtype)
    return np.asarray(rng.uniform(0.5, 1.5, tuple(result.shape)), dtype)


# -- written down: without PyTorch, on every engine ----------------------------------------------------------------

Case = tuple[str, Callable[[Any], Any], list[Any], Any, Any]
MOST = float(np.finfo(np.float32).max)
CASES: list[Case] = [
    # name, function, argument, result, gradient of the result's sum
    ("relu", F.relu, [-INF, -1, -0.0, 0, 1, INF, NAN], [0, 0, -0.0, 0, 1, INF, NAN], [0, 0, 0, 0, 1, 1, 1]),
    (
        "leaky_relu",
        lambda x: F.leaky_relu(x, 0.5),
        [-INF, -2, 2, INF, NAN],
        [-INF, -1, 2, INF, NAN],
        [0.5, 0.5, 1, 1, 0.5],
    ),
    ("sigmoid", F.sigmoid, [-INF, 0, INF, NAN], [0, 0.5, 1, NAN], [0, 0.25, 0, NAN]),
    ("tanh", F.tanh, [-INF, 0, INF, NAN], [-1, 0, 1, NAN], [0, 1, 0, NAN]),
    ("softplus", lambda x: alpha.softplus(x, 3.0), [-INF, INF, MOST, NAN], [0, INF, MOST, NAN], [0, 1, 1, NAN]),
    (
        "softmax",
        lambda x: F.softmax(x, -1),
        [[0, INF], [-INF, -INF], [-INF, 0]],
        [[NAN, NAN], [NAN, NAN], [0, 1]],
        None,
    ),
    ("log_softmax", lambda x: F.log_softmax(x, -1), [[-INF, 0], [NAN, 0]], [[-INF, 0], [NAN, NAN]], None),
    ("sign", alpha.sign, [-INF, -0.0, NAN, 3], [-1, 0, 0, 1], [0, 0, 0, 0]),
    ("abs", alpha.abs, [-INF, -0.0, NAN], [INF, 0, NAN], [-1, 0, 0]),
    ("sqrt", alpha.sqrt, [0, INF, -1, NAN], [0, INF, NAN, NAN], [INF, 0, NAN, NAN]),
    ("log", alpha.log, [0, INF, -1], [-INF, INF, NAN], [INF, 0, -1]),
    ("power 0.5", lambda x: x**0.5, [-0.0, -INF, 4], [-0.0, NAN, 2], None),
    ("power -1", lambda x: x**-1, [0, -0.0, INF], [INF, -INF, 0], [-INF, -INF, 0]),
    ("power 0", lambda x: x**0, [0, INF, NAN], [1, 1, 1], [0, 0, 0]),
    ("0 to a power", lambda x: alpha.pow(0.0, x), [-1, 0, 2], [INF, 1, 0], [-INF, 0, 0]),
    ("remainder", lambda x: x % 2.0, [-0.0, 4, -1, INF], [-0.0, 0, 1, NAN], [1, 1, 1, 1]),
    (
        "maximum",
        lambda x: alpha.maximum(x, alpha.tensor([1.0, 0, 0], engine=x.engine)),
        [1, NAN, -1],
        [1, NAN, 0],
        [0.5, 1, 0],
    ),
    ("clamp", lambda x: alpha.clamp(x, 1.0, -1.0), [0, NAN, INF], [-1, NAN, -1], [0, 0, 0]),
    ("clamp by tensors", lambda x: alpha.clamp(x, alpha.zeros_like(x), 1.0), [0, NAN, 2], [0, NAN, 1], [1, 0, 0]),
    ("where", lambda x: alpha.where(x > 0, x, 0.0), [INF, NAN, -INF], [INF, 0, 0], [1, 0, 0]),
    ("sum", alpha.sum, [INF, -INF], NAN, [1, 1]),
    ("mean of infinities", alpha.mean, [INF, 1], INF, [0.5, 0.5]),
    ("std of a constant", lambda x: alpha.std(x, -1), [[2, 2, 2], [INF, 0, 0]], [0, NAN], [[0, 0, 0], [NAN, NAN, NAN]]),
    ("std of one", lambda x: alpha.std(x, -1), [[2]], [NAN], [[NAN]]),
    ("var of one, biased", lambda x: alpha.var(x, -1, False), [[2]], [0], [[0]]),
    (
        "prod",
        lambda x: alpha.prod(x, -1),
        [[0, 2, 3], [0, 0, 3], [0, INF, 2]],
        [0, 0, NAN],
        [[6, 0, 0], [0, 0, 0], [INF, 0, NAN]],
    ),
    ("max", alpha.max, [NAN, 1, NAN], NAN, [0.5, 0, 0.5]),
    ("min with ties", alpha.min, [1, 1, 2], 1, [0.5, 0.5, 0]),
    ("argmax", lambda x: alpha.argmax(x, -1), [[1, NAN, 3], [2, 2, 1]], [1, 0], None),
    ("sort", lambda x: alpha.sort(x, -1)[0], [NAN, 2, -INF, INF], [-INF, 2, INF, NAN], [1, 1, 1, 1]),
    ("cumsum", lambda x: alpha.cumsum(x, 0), [1, INF, -INF, 1], [1, INF, NAN, NAN], [4, 3, 2, 1]),
    (
        "logsumexp",
        lambda x: alpha.logsumexp(x, -1),
        [[-INF, -INF], [INF, 0], [NAN, 0]],
        [-INF, INF, NAN],
        [[NAN, NAN], [NAN, 0], [NAN, NAN]],
    ),
    ("norm 0", lambda x: alpha.norm(x, 0, -1), [[0, NAN, 2]], [2], [[0, 0, 0]]),
    ("norm 1", lambda x: alpha.norm(x, 1, -1), [[0, -INF, 2]], [INF], [[0, -1, 1]]),
    ("norm 2", lambda x: alpha.norm(x, 2, -1), [[0, 0], [3, 4]], [0, 5], [[0, 0], [0.6, 0.8]]),
    ("norm 2 of one", lambda x: alpha.norm(x, 2, -1), [[MOST], [1e-40]], [MOST, 1e-40], [[1], [1]]),
    ("norm 3", lambda x: alpha.norm(x, 3, -1), [[0, 0], [-1, 0]], [0, 1], [[0, 0], [-1, 0]]),
    ("norm 0.5", lambda x: alpha.norm(x, 0.5, -1), [[0, 0], [-1, 0]], [0, 1], [[0, 0], [-1, 0]]),
    ("norm inf", lambda x: alpha.norm(x, INF, -1), [[-2, 2], [NAN, 1]], [2, NAN], [[-0.5, 0.5], [0, 0]]),
    ("norm -inf", lambda x: alpha.norm(x, -INF, -1), [[-2, 3]], [2], [[-1, 0]]),
    ("norm -1", lambda x: alpha.norm(x, -1, -1), [[2, 2], [0, 1]], [1, 0], None),
    (
        "layer_norm of a constant",
        lambda x: F.layer_norm(x, 3),
        [[2, 2, 2], [0, INF, 0]],
        [[0, 0, 0], [NAN, NAN, NAN]],
        None,
    ),
    ("mse_loss", lambda x: F.mse_loss(x, alpha.zeros_like(x)), [INF, 1], INF, [INF, 1]),
    ("l1_loss", lambda x: F.l1_loss(x, alpha.zeros_like(x), reduction="sum"), [-INF, NAN], NAN, [-1, 0]),
    (
        "cross_entropy",
        lambda x: F.cross_entropy(x, alpha.tensor([0, 0], engine=x.engine), reduction="none"),
        [[0, -INF], [-INF, 0]],
        [0, INF],
        [[0, 0], [-1, 1]],
    ),
    (
        "nll_loss",
        lambda x: F.nll_loss(x, alpha.tensor([1], engine=x.engine), reduction="sum"),
        [[NAN, -INF]],
        INF,
        [[0, -1]],
    ),
    (
        "bce",
        lambda x: F.binary_cross_entropy_with_logits(x, alpha.ones_like(x), reduction="none"),
        [INF, -100, 100],
        [NAN, 100, 0],
        [0, -1, 0],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_written_down(engine: Engine, case: Case, dtype: Any) -> None:
    _, function, argument, result, gradient = case
    x = alpha.tensor(np.array(argument, dtype), engine=engine, requires_grad=gradient is not None)
    y = function(x)
    np.testing.assert_allclose(np.asarray(y.detach()), np.array(result, dtype), rtol=1e-5, atol=1e-6)
    zeros = np.asarray(result) == 0
    if case[0] in ("relu", "power 0.5", "remainder"):
        np.testing.assert_array_equal(np.signbit(np.asarray(y.detach()))[zeros], np.signbit(result)[zeros])
    if gradient is not None:
        y.sum().backward()
        np.testing.assert_allclose(np.asarray(x.grad), np.array(gradient, dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinite_gradients_stop_where_relu_is_flat(engine: Engine, dtype: Any) -> None:
    x = alpha.tensor(np.array([-1, 0, 1, NAN] * 9, dtype), engine=engine, requires_grad=True)
    F.relu(x).backward(alpha.tensor(np.full(36, INF, dtype), engine=engine))
    np.testing.assert_array_equal(np.asarray(x.grad), np.array([0, 0, INF, INF] * 9, dtype))


@pytest.mark.parametrize("channels", [3, 4, 40])
@pytest.mark.parametrize("groups", [1, None], ids=["dense", "depthwise"])
def test_fused_relu_of_infinities(engine: Engine, channels: int, groups: int | None) -> None:
    groups = groups or channels
    x = np.ones((2, 4, 4, channels), np.float32)
    x[0, 1, 1], x[1, 2, 2] = -INF, NAN
    w = np.full((channels, 1, 1, channels // groups), 1 / (channels // groups), np.float32)
    y = F.conv2d(alpha.tensor(x, engine=engine), alpha.tensor(w, engine=engine), groups=groups, activation="relu")
    np.testing.assert_allclose(np.asarray(y), np.where(x == -INF, 0, x), rtol=1e-6)


def test_constant_statistics_keep_infinities_to_themselves(engine: Engine) -> None:
    x = alpha.tensor(np.array([[-INF, 1], [INF, NAN], [2, 3]], np.float32), engine=engine, requires_grad=True)
    zeros, ones = alpha.zeros(2, engine=engine), alpha.ones(2, engine=engine)
    y = F.batch_norm(x, zeros, ones, eps=0.0, activation="relu")
    np.testing.assert_array_equal(np.asarray(y.detach()), np.array([[0, 1], [INF, NAN], [2, 3]], np.float32))
    y.backward(alpha.ones_like(y))
    np.testing.assert_array_equal(np.asarray(x.grad), np.array([[0, 1], [1, 1], [1, 1]], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_group_norm_gradient(engine: Engine, rng: np.random.Generator, dtype: Any) -> None:
    """Its statistics may be wider than its operations: the gradient is that of its formula all the same."""
    x, g = rng.standard_normal((2, 3, 3, 4)).astype(dtype), rng.standard_normal((2, 3, 3, 4)).astype(dtype)
    t = alpha.tensor(x, engine=engine, requires_grad=True)
    F.group_norm(t, 2).backward(alpha.tensor(g, engine=engine))
    shape = 2, 9, 2, 2
    a, b, axes = x.reshape(shape).astype(np.float64), g.reshape(shape).astype(np.float64), (1, 3)
    scale = 1 / np.sqrt(a.var(axes, keepdims=True) + 1e-5)
    normal = (a - a.mean(axes, keepdims=True)) * scale
    expected = (b - b.mean(axes, keepdims=True) - normal * (b * normal).mean(axes, keepdims=True)) * scale
    np.testing.assert_allclose(np.asarray(t.grad), expected.reshape(x.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("corners", [False, True])
def test_bilinear_beside_infinity(engine: Engine, corners: bool) -> None:
    x = np.zeros((1, 40, 3, 1), np.float32)
    x[0, 20, 0] = INF
    y = np.asarray(F.interpolate(alpha.tensor(x, engine=engine), (80, 6), mode="bilinear", align_corners=corners))
    reached = ~np.isfinite(y[0, :, :, 0])
    rows = np.flatnonzero(reached.any(1))
    assert 2 <= len(rows) <= 4 and rows[-1] - rows[0] < 4, "an infinity reaches its neighbours alone"
    assert not reached[:, 4:].any()


def test_last_nan_of_a_window_takes_the_gradient(engine: Engine) -> None:
    x = alpha.tensor(np.array([NAN, 5, NAN, 1], np.float32).reshape(1, 2, 2, 1), engine=engine, requires_grad=True)
    y = F.max_pool2d(x, 2)
    assert math.isnan(y.item())
    y.sum().backward()
    np.testing.assert_array_equal(np.asarray(x.grad).reshape(-1), [0, 0, 1, 0])


def test_dropout_of_what_is_not_finite(engine: Engine) -> None:
    """What is dropped is 0 whatever it was, here also where PyTorch multiplies with 0; what is kept is scaled."""
    x = alpha.tensor(np.array([INF, -INF, NAN, 1] * 64, np.float32), engine=engine, requires_grad=True)
    y = np.asarray(F.dropout(x, 0.5).detach()).reshape(-1, 4)
    assert set(y[:, 0]) == {0.0, INF} and set(y[:, 1]) == {0.0, -INF} and set(y[:, 3]) == {0.0, 2.0}
    assert np.isnan(y[:, 2]).sum() + (y[:, 2] == 0).sum() == 64
    dropped = F.dropout(x, 1.0)
    dropped.backward(alpha.tensor(np.full(256, INF, np.float32), engine=engine))
    assert not np.asarray(dropped.detach()).any() and not np.asarray(x.grad).any()


# -- optimizers --------------------------------------------------------------------------------------------------

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("AdamW", {}),
    ("Adam", {"weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_optimizers_are_pytorchs(engine: Engine, name: str, options: dict[str, Any], dtype: Any) -> None:
    import torch

    values = np.array([0, -0.0, 1, -1, INF, -INF, NAN, MOST, 1e20, 1e-40], dtype)
    p, g = (part.reshape(-1).copy() for part in np.meshgrid(values, values))
    ours, theirs = nn.Parameter(alpha.tensor(p, engine=engine)), torch.nn.Parameter(torch.tensor(p))
    steps = [getattr(lib, name)([x], **options) for lib, x in ((optim, ours), (torch.optim, theirs))]
    for _ in range(2):
        ours.grad, theirs.grad = alpha.tensor(g, engine=engine), torch.tensor(g)
        for step in steps:
            step.step()
    np.testing.assert_allclose(np.asarray(ours.detach()), theirs.detach().numpy(), rtol=2e-6, atol=1e-7)


def test_an_infinite_parameter_leaves_its_gradient_alone(engine: Engine) -> None:
    p = nn.Parameter(alpha.tensor(np.array([INF, -INF, 1], np.float32), engine=engine))
    for optimizer in (optim.SGD([p], lr=0.5), optim.Adam([p]), optim.AdamW([p]), optim.RMSprop([p])):
        p.grad = alpha.zeros(3, engine=engine)
        optimizer.step()
        values = np.asarray(p.detach())
        np.testing.assert_array_equal(values[:2], [INF, -INF])
        assert math.isfinite(values[2])


# -- integers and conversions --------------------------------------------------------------------------------------


def test_integers_wrap_and_divide_by_zero(engine: Engine) -> None:
    least, most = -(2**63), 2**63 - 1
    x = alpha.tensor(np.array([least, most, -1]), engine=engine)
    u = alpha.tensor(np.array([0, 1, 255], np.uint8), engine=engine)
    zero = alpha.zeros_like(x)
    expected: list[tuple[Any, list[int]]] = [
        (-x, [least, -most, 1]),
        (x.abs(), [least, most, 1]),
        (x + 1, [least + 1, least, 0]),
        (x * x, [0, 1, 1]),
        (x // -1, [least, -most, 1]),
        (x % -1, [0, 0, 0]),
        (x // zero, [0, 0, 0]),  # PyTorch raises, which a device could not without waiting
        (x % zero, [0, 0, 0]),
        (-u, [0, 255, 1]),
        (u + 255, [255, 0, 254]),
        (u * u, [0, 1, 1]),
    ]
    for result, values in expected:
        np.testing.assert_array_equal(np.asarray(result), values)
    np.testing.assert_array_equal(np.asarray(x / zero), [-INF, INF, -INF])
    b = alpha.tensor(np.array([True, False]), engine=engine)
    np.testing.assert_array_equal(np.asarray(b + b), [True, False])
    np.testing.assert_array_equal(np.asarray(b * ~np.array([True, False])), [False, False])
    np.testing.assert_array_equal(np.asarray(b / b), [1, NAN])


@pytest.mark.parametrize("target", ["int32", "int64", "uint8", "bool"])
def test_conversions_of_what_does_not_fit_are_quiet(engine: Engine, target: str) -> None:
    """What they give is the machine's choice, as in PyTorch; warnings are errors in these tests."""
    x = np.array([NAN, INF, -INF, 1e30, -1e30, 5.7, -0.5], np.float32)
    for values in (x, x.astype(np.float64), np.array([1e300, -1e300, 3.2])):
        y = np.asarray(alpha.tensor(values, engine=engine).astype(target))
        fits = np.abs(values) < 100
        np.testing.assert_array_equal(y[fits], values[fits].astype(target))
    with np.errstate(over="ignore"):
        narrow = np.array([1e300, NAN]).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(alpha.tensor(np.array([1e300, NAN]), engine=engine).float()), narrow)


def test_numbers_beyond_float32_are_infinite(engine: Engine) -> None:
    x = alpha.tensor(np.array([-1, 2], np.float32), engine=engine)
    np.testing.assert_array_equal(np.asarray(F.leaky_relu(x, 1e300)), [-INF, 2])
    np.testing.assert_array_equal(np.asarray(x * 1e300), [-INF, INF])
    a = alpha.zeros((2, 2), engine=engine)
    np.testing.assert_array_equal(np.asarray(linalg.ger(a, x, x, 1e300)), [[INF, -INF], [-INF, INF]])


# -- one engine as the other -------------------------------------------------------------------------------------

FIRST = list({record.name: record for record in reversed(RECORDS) if record.special}.values())[::-1]
"""The first record of each function."""


@pytest.mark.parametrize("record", FIRST, ids=str)
def test_the_device_gives_the_hosts_values(cu32: Engine, record: Record) -> None:
    """Where PyTorch is not installed the CPU engine stands for it: one sample of each function."""
    sample = list(samples(record, np.float32))[-1 if record.values == "mixed" else 0]
    found = []
    for engine in (alpha.engine("cpu"), cu32):
        arguments = [alpha.tensor(x, engine=engine) for x in sample.arguments]
        for spec, x in zip(record.shapes, arguments, strict=True):
            x.requires_grad = record.gradient and is_float(spec)
        results = several(record.ours(*arguments))
        for y in results:
            if y.requires_grad:
                weights = np.random.default_rng(1).uniform(0.5, 1.5, y.shape).astype(y.dtype)
                y.backward(alpha.tensor(weights, engine=engine), retain_graph=True)
        gradients = [x.grad for x in arguments if x.grad is not None]
        found.append([np.array(y.detach()) for y in [*results, *gradients]])
    for host, device in zip(*found, strict=True):
        assert device.shape == host.shape and device.dtype == host.dtype
        assert not different(record, device, host, sample.arguments).any()
