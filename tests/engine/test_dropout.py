"""Dropout: equal to alpha.random to the bit in every memory order and thread count, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.functions as F
from alpha import random
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError
from alpha.testing import gradcheck
from tests.tiers import FLOAT_NAMES

SHAPES = [
    (), (1,), (7,), (40_001,), (3, 5), (129, 515), (3, 5, 7, 2), (2, 3, 2, 132), (2, 3, 2, 70), (2, 3, 4, 5, 6), (0, 3),
    (5, 1, 3),
]  # fmt: skip


def expected_mask(shape: tuple[int, ...], p: float, seed: int, offset: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return random.uniforms(seed, offset, count).astype(np.float64).reshape(shape) >= p


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_elements_are_kept_by_their_number_in_every_memory_order(
    engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> None:
    values = rng.standard_normal(shape).astype(dtype)
    seed, offset, p = 2**64 - 12345, 2**32 - 100, 0.3  # the offset's low word runs over on the way
    keep = expected_mask(shape, p, seed, offset)
    expected = np.where(keep, values * values.dtype.type(1 / (1 - p)), 0)
    orders = [None, tuple(reversed(range(len(shape))))] + ([(1, 2, 0, 3)] if len(shape) == 4 else [])
    for order in orders:
        x = engine.empty(shape, values.dtype, order)
        engine.copy(engine.from_numpy(values), x)
        y, mask = engine.dropout(x, p, seed, offset)
        assert mask.dtype == np.bool_ and np.array_equal(mask.numpy(), keep)
        assert y.dtype == values.dtype and np.array_equal(y.numpy(), expected)
        assert y.is_contiguous(order)


def test_views_with_gaps_and_repeats(engine: Engine, rng: np.random.Generator) -> None:
    x = engine.from_numpy(rng.standard_normal((6, 10)))
    for view in (x[:, ::2], x[1:4], x[2].expand(5, 10), x.transpose(0, 1)[3:7]):
        y, _ = engine.dropout(view, 0.4, 1, 2)
        keep = expected_mask(view.shape, 0.4, 1, 2)
        assert np.array_equal(y.numpy(), np.where(keep, view.numpy() * (1 / 0.6), 0))


@pytest.mark.parametrize("p", [0.0, 2.0**-24, 0.1, 0.5, 0.7, 1 - 2.0**-24, 1.0])
def test_the_threshold_is_exact(engine: Engine, p: float) -> None:
    x = engine.from_numpy(np.ones(50_000))
    y, mask = engine.dropout(x, p, 3, 0)
    keep = expected_mask(x.shape, p, 3, 0)
    assert np.array_equal(mask.numpy(), keep) and np.array_equal(y.numpy() != 0, keep)


def test_masks_do_not_depend_on_the_number_of_threads(cpu: CPUEngine) -> None:
    before = cpu.threads
    x = cpu.from_numpy(np.ones((300, 401), np.float32))
    results = []
    try:
        for threads in {1, before}:
            cpu.configure(threads=threads)
            results.append(cpu.dropout(x, 0.25, 9, 9)[0].numpy().tobytes())
    finally:
        cpu.configure(threads=before)
    assert len(set(results)) == 1


def test_draws_go_on_and_repeat_with_the_seed(engine: Engine) -> None:
    x = engine.from_numpy(np.ones((7, 9), np.float32))

    def draw() -> tuple[bytes, ...]:
        alpha.manual_seed(5)
        return tuple(F.dropout(x, 0.5).numpy().tobytes() for _ in range(3))

    first = draw()
    assert len(set(first)) == 3 and draw() == first
    alpha.manual_seed(5)
    assert np.array_equal(F.dropout(x, 0.5).numpy() != 0, expected_mask((7, 9), 0.5, 5, 0))


def test_share_and_scale(engine: Engine) -> None:
    alpha.manual_seed(0)
    out = F.dropout(engine.from_numpy(np.ones(200_000, np.float32)), 0.2).numpy()
    kept = (out != 0).mean()
    assert abs(kept - 0.8) < 4 * np.sqrt(0.2 * 0.8 / 200_000)  # 4 standard deviations
    assert set(np.unique(out).tolist()) == {0.0, 1.25}


def test_nothing_happens_outside_training(engine: Engine) -> None:
    x = engine.from_numpy(np.ones(5, np.float32))
    before = random.get_state()
    assert F.dropout(x, 0.5, training=False) is x and F.dropout(x, 0.0) is x
    assert random.get_state() == before


@pytest.mark.parametrize("p", [0.4, 1.0])
def test_gradient(engine: Engine, rng: np.random.Generator, p: float) -> None:
    def repeated(x: alpha.Tensor) -> alpha.Tensor:
        alpha.manual_seed(8)
        return F.dropout(x, p)

    assert gradcheck(repeated, engine.from_numpy(rng.standard_normal((3, 4, 5))))


def test_what_is_not_finite_is_dropped_too(engine: Engine) -> None:
    alpha.manual_seed(1)
    x = engine.from_numpy(np.full(64, np.nan)).requires_grad_()
    out = F.dropout(x, 0.5)
    dropped = ~np.isnan(out.detach().numpy())
    assert 10 < dropped.sum() < 54 and not out.detach().numpy()[dropped].any()
    out.backward(engine.from_numpy(np.full(64, np.inf)))
    assert np.array_equal(x.grad.numpy(), np.where(dropped, 0, np.inf))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.dropout(x, -0.1), ArgumentError, r"^\[dropout\] expected a probability p in 0..1, got -0.1"),
        (lambda x: F.dropout(x, 1.5), ArgumentError, r"^\[dropout\] expected a probability p in 0..1, got 1.5"),
        (
            lambda x: F.dropout(x, float("nan")),
            ArgumentError,
            r"^\[dropout\] expected a probability p in 0..1, got nan",
        ),
        (lambda x: F.dropout(x, "half"), ArgumentError, r"^\[dropout\] expected a probability p in 0..1, got 'half'"),
        (lambda x: F.dropout(x.long()), DtypeError, r"^\[dropout\] expected a float32 or float64 tensor, got int64"),
        (lambda x: F.dropout([1.0]), DtypeError, r"^\[dropout\] expected a float32 or float64 tensor, got list"),
    ],
)
def test_wrong_arguments_say_so(
    engine: Engine, call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(engine.from_numpy(np.zeros(3, np.float32)))
    assert "\n" not in str(caught.value)
