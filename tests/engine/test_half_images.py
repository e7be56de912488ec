"""Convolutions and BatchNorm of images of 16 bits: what float64 gives, rounded once, wherever an engine reads halves.

A result is off by at most half a unit in its last place, 2 ** -9 of itself in bfloat16, from what was rounded, and that
by what sums in float32 round; bounds are twice that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Engine, nn, optim
from alpha.cpu import isa, pairs, planner
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]
ULP = {alpha.bfloat16: 2.0**-8, alpha.float16: 2.0**-11}

SHAPES = [  # images, filters, stride, padding, dilation, groups
    ((4, 9, 7, 16), (8, 3, 3, 16), 1, 1, 1, 1),
    ((3, 8, 11, 5), (7, 3, 2, 5), (2, 1), (0, 3), 1, 1),
    ((1, 1, 1, 33), (6, 1, 1, 33), 1, 0, 1, 1),
    ((2, 6, 6, 64), (64, 3, 3, 64), 2, 1, 1, 1),
    ((5, 13, 10, 6), (4, 3, 3, 3), 1, 2, 2, 2),
    ((2, 7, 9, 12), (12, 3, 3, 1), 1, 1, 1, 12),
    ((2, 5, 6, 3), (9, 1, 1, 3), 3, 0, 1, 1),
    ((2, 4, 3, 8), (8, 5, 5, 8), 1, 4, 1, 1),
    ((1, 3, 2, 128), (512, 3, 3, 128), 1, 1, 1, 1),
]


def near(found: Any, exact: Array, dtype: Any) -> None:
    """Holds a result to what it would be without rounding."""
    size = np.sqrt(np.mean(np.square(exact))) + 1e-30
    values = found.detach().numpy().astype(np.float64)
    np.testing.assert_allclose(values, exact, rtol=ULP[dtype], atol=1e-5 * size)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups"), SHAPES)
def test_convolutions_round_once(
    engine: Engine,
    rng: np.random.Generator,
    dtype: Any,
    x_shape: Any,
    w_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> None:
    x, w, bias = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape, w_shape[:1]))
    results = []
    for kind in (dtype, np.float64):
        given = [alpha.tensor(one.astype(kind), engine=engine).requires_grad_() for one in (x, w, bias)]
        y = F.conv2d(*given, stride, padding, dilation, groups, layout="NHWC")
        dy = np.random.default_rng(7).standard_normal(y.shape).astype(dtype)
        y.backward(alpha.tensor(dy.astype(kind), engine=engine))
        results.append([y, *[one.grad for one in given]])
    for found, exact in zip(*results, strict=True):
        assert found.dtype == dtype
        near(found, exact.detach().numpy(), dtype)


def test_images_in_any_memory(engine: Engine, rng: np.random.Generator) -> None:
    """Images that are views with gaps or in another order, filters turned, and a gradient that is added to."""
    dtype = alpha.bfloat16
    wide = alpha.tensor(rng.standard_normal((3, 12, 9, 20)).astype(dtype), engine=engine)
    w = alpha.tensor(rng.standard_normal((10, 3, 3, 3)).astype(dtype), engine=engine)
    for x in (wide[:, 1:11, :, 4:14], wide.permute(0, 2, 1, 3)[..., :10], wide[:, ::2, ::3, :10]):
        turned = w.permute(3, 1, 2, 0)
        exact = F.conv2d(x.double(), turned.double(), padding=1, layout="NHWC")
        near(F.conv2d(x, turned, padding=1, layout="NHWC"), exact.numpy(), dtype)
    x = wide[..., :10].contiguous().requires_grad_()
    total = (
        F.conv2d(x, w.permute(3, 1, 2, 0), padding=1, layout="NHWC").sum()
        + F.conv2d(x, w.permute(3, 1, 2, 0), layout="NHWC").sum()
    )
    total.backward()
    exact_x = x.detach().double().requires_grad_()
    both = [F.conv2d(exact_x, w.double().permute(3, 1, 2, 0), padding=p, layout="NHWC").sum() for p in (1, 0)]
    (both[0] + both[1]).backward()
    assert x.grad is not None and exact_x.grad is not None
    # Two parts that may cancel, each rounded.
    size = float(exact_x.grad.abs().max())
    np.testing.assert_allclose(x.grad.numpy().astype(np.float64), exact_x.grad.numpy(), rtol=0, atol=2.0**-8 * size)


def test_without_the_instruction(engine: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "DOTS", False)
    test_images_in_any_memory(engine, rng)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize("shape", [(16, 33, 32, 19), (2, 3, 4, 5), (3, 40, 40, 70)])
@pytest.mark.parametrize("activation", [None, "relu", "leaky_relu"])
@pytest.mark.parametrize("added", [False, True])
def test_batch_norm_beside_float32_weights(
    engine: Engine, rng: np.random.Generator, dtype: Any, shape: Any, activation: str | None, added: bool
) -> None:
    if engine.name != "cpu" and np.prod(shape) > 1000:
        pytest.skip("the stand-in takes long for so many")
    channels = shape[-1]
    x, other = ((rng.standard_normal(shape) * 2 + 1).astype(dtype) for _ in range(2))
    weight, bias = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    results, kept = [], []
    for kind, of_vectors in ((dtype, np.float32), (np.float64, np.float64)):
        a, b = (alpha.tensor(one.astype(kind), engine=engine).requires_grad_() for one in (x, other))
        vectors = [alpha.tensor(one.astype(of_vectors), engine=engine) for one in (weight, bias)]
        gamma, beta = [one.requires_grad_() for one in vectors]
        running = [alpha.tensor(one((channels,), of_vectors), engine=engine) for one in (np.zeros, np.ones)]
        y = F.batch_norm(a, *running, gamma, beta, True, 0.1, 1e-5, b if added else None, activation)
        dy = np.random.default_rng(5).standard_normal(shape).astype(dtype)
        y.backward(alpha.tensor(dy.astype(kind), engine=engine))
        results.append([y, a.grad, *([b.grad] if added else [])])
        kept.append([gamma.grad, beta.grad, *running])
    found, exact = results
    near(found[0], exact[0].detach().numpy(), dtype)
    # An activation's result, or argument, near 0 may be rounded to 0 or beyond: few elements then have another slope.
    for one, wanted in zip(found[1:], exact[1:], strict=True):
        assert one is not None and one.dtype == dtype
        apart = np.abs(one.numpy().astype(np.float64) - wanted.numpy())
        size = np.sqrt(np.mean(np.square(wanted.numpy())))
        assert np.mean(apart > 2 * ULP[dtype] * np.abs(wanted.numpy()) + 1e-4 * size) < 2e-3
    # Sums in float32; those past an activation have the few elements with another slope in them.
    for one, wanted in zip(*kept, strict=True):
        assert one.dtype == alpha.float32
        size = np.abs(wanted.numpy()).max()
        np.testing.assert_allclose(one.numpy(), wanted.numpy(), rtol=1e-3, atol=(1e-3 if activation else 1e-4) * size)


def test_batch_norm_refuses_other_mixtures(engine: Engine) -> None:
    x = alpha.ones((2, 3, 4), dtype=alpha.bfloat16, engine=engine)
    half, double = (alpha.ones((4,), dtype=kind, engine=engine) for kind in (alpha.float16, alpha.float64))
    for weight in (half, double):
        with pytest.raises(alpha.errors.DtypeError, match="batch_norm"):
            F.batch_norm(x, None, None, weight, None, True)
    with pytest.raises(alpha.errors.DtypeError, match="batch_norm"):
        F.batch_norm(x, None, None, half.bfloat16(), half.float(), True)
    assert F.batch_norm(x, None, None, half.bfloat16(), half.bfloat16(), True).dtype == alpha.bfloat16


def test_a_network_trains_in_bfloat16_as_in_float32(engine: Engine) -> None:
    """The same batches from the same weights: losses stay within a few roundings of each other."""
    images = np.random.default_rng(1).standard_normal((8, 8, 8, 3)).astype(np.float32)
    labels = np.random.default_rng(2).integers(0, 4, 8)
    losses = []
    for enabled in (False, True):
        alpha.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4),
        ).to(engine).train()  # fmt: skip
        optimizer = optim.SGD(net.parameters(), lr=0.05)
        x, y = alpha.tensor(images, engine=engine), alpha.tensor(labels, engine=engine)
        run = []
        for _ in range(5):
            optimizer.zero_grad()
            with alpha.autocast("bfloat16", enabled=enabled):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            run.append(loss.item())
        losses.append(run)
        assert all(p.dtype == alpha.float32 and p.grad is not None for p in net.parameters())
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.05, atol=0.02)
    assert losses[1][-1] < losses[1][0] / 2


def test_results_of_batch_norm_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bits that they had, and without being kept from forward to backward."""
    cpu = alpha.engine("cpu")
    x = np.random.default_rng(1).standard_normal((16, 40, 40, 3)).astype(np.float32)
    found, held = [], []
    for remakes in (True, False):
        monkeypatch.setattr(type(cpu), "remakes_batch_norm", lambda self, x, remakes=remakes: remakes)
        alpha.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1),
        ).train()  # fmt: skip
        given = alpha.tensor(x, requires_grad=True)
        for _ in range(2):
            with alpha.autocast("bfloat16"):
                loss = (net(given).float() ** 2).mean()
            in_use = cpu.memory.statistics().in_use
            loss.backward()
        found.append([np.array(one.grad) for one in (given, *net.parameters())] + [np.array(loss.detach())])
        held.append(in_use)
        del net, given, loss
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    first, third = (16 * side**2 * 16 * 2 for side in (40, 20))  # max pooling keeps no images
    assert held[0] <= held[1] - first - third


@pytest.mark.skipif(not isa.DOTS, reason="this processor has no VDPBF16PS")
@pytest.mark.parametrize("name", ["images", "panels", "positions", "taps"])
def test_factors_are_multiplied_as_they_lie_in_memory(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    by_words, made = pairs.by_words, []

    def noted(engine: Any, choice: Any, problem: Any, call: Any) -> int:
        named, paired = planner.named(name, problem.operator), pairs.of_words(problem)
        if named is not None and paired is not None and named.serves(paired):
            made.append((choice.algorithm.name, call.source.dtype, call.other.dtype))
        return by_words(engine, choice, problem, call)

    monkeypatch.setattr(pairs, "by_words", noted)
    for shape, filters, stride, padding, dilation, groups in SHAPES:
        with planner.use(name):
            test_convolutions_round_once(
                alpha.engine("cpu"), rng, alpha.bfloat16, shape, filters, stride, padding, dilation, groups
            )
    assert {one[0] for one in made} == {name} and {one[1:] for one in made} == {(alpha.bfloat16, alpha.bfloat16)}
    if name in ("images", "positions"):
        with alpha.no_grad(), planner.use(name):
            x = alpha.tensor(rng.standard_normal((3, 6, 5, 7)).astype(alpha.bfloat16))
            w = alpha.tensor(rng.standard_normal((9, 3, 3, 7)).astype(alpha.bfloat16))
            exact = F.conv2d(x.double(), w.double(), layout="NHWC").numpy()
            for _ in range(3):  # words of filters are kept
                near(F.conv2d(x, w, layout="NHWC"), exact, alpha.bfloat16)
            w *= 2
            near(F.conv2d(x, w, layout="NHWC"), 2 * exact, alpha.bfloat16)
